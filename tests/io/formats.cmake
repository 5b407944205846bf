# A converter over the formats, compared with other programs' readers and writers.
add_executable(format_tool format_tool.cc)
set_target_properties(format_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/bin")
target_link_libraries(format_tool PRIVATE tilery_io)

tilery_test(format_test
  exif_test.cc
  format_contract_test.cc
  format_test.cc
  huffman_test.cc
  jpeg_test.cc
  nifti_test.cc
  npy_test.cc
  ordered_work_test.cc
  packets_test.cc
  picture_metadata_test.cc
  png_encoder_test.cc
  png_metadata_test.cc
  png_test.cc
  run_deflate_test.cc
  tiff_refusal_test.cc
  tiff_test.cc
  LIBS tilery_io PNG::PNG ZLIB::ZLIB)

# Replaces operator new in the whole program.
tilery_test(png_memory_test
  png_memory_test.cc
  LIBS tilery_io)

tilery_test(vdb_test
  tvdb_file_test.cc
  vdb_test.cc
  LIBS tilery_io)

# Copies OpenVDB files, which OpenVDB's own library then compares.
add_executable(vdb_tool vdb_tool.cc)
set_target_properties(vdb_tool PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/bin")
target_link_libraries(vdb_tool PRIVATE tilery_io)
tilery_pytest(vdb_second_opinion "${CMAKE_CURRENT_SOURCE_DIR}/test_vdb.py" LABELS unit)

tilery_pytest(format_second_opinion "${CMAKE_CURRENT_SOURCE_DIR}/test_formats.py" LABELS unit)
