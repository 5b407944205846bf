# The containers of pictures and volumes, each behind the registry in format.cc.
set(TILERY_IO_FORMATS
  array_file.cc
  buffered_input.cc
  container.cc
  exif.cc
  exif_tree.cc
  format.cc
  gzip.cc
  jpeg_reader.cc
  jpeg_writer.cc
  metadata.cc
  nifti_header.cc
  nifti_reader.cc
  nifti_writer.cc
  npy.cc
  png_reader.cc
  png_writer.cc
  raw.cc
  row_cursor.cc
  tiff_handle.cc
  tiff_metadata.cc
  tiff_picture.cc
  tiff_reader.cc
  tiff_writer.cc)
set(TILERY_IO_FORMAT_LIBRARIES PNG::PNG JPEG::JPEG TIFF::TIFF ZLIB::ZLIB Threads::Threads)
