tilery_test(job_test
  batch_script_test.cc
  bench_report_test.cc
  bench_wire_test.cc
  compile_client_test.cc
  compiled_model_test.cc
  contract_test.cc
  glob_test.cc
  gpu_choice_test.cc
  input_hasher_test.cc
  input_headers_test.cc
  inputs_test.cc
  item_rules_test.cc
  job_keys_test.cc
  job_schema_test.cc
  job_test.cc
  keys_test.cc
  model_file_test.cc
  numerics_test.cc
  output_paths_test.cc
  package_cache_test.cc
  plan_test.cc
  pipeline_test.cc
  planner_test.cc
  probe_client_test.cc
  python_finder_test.cc
  report_test.cc together_test.cc
  tiling_rules_test.cc
  unit_sizing_test.cc
  worker_watch_test.cc
  zip_file.cc
  LIBS tilery_scheduler libzip::zip ZLIB::ZLIB)
tilery_test(scheduler_devices_test devices_test.cc launch_plan_test.cc LIBS tilery_scheduler
  ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/tests/fake_driver:$ENV{LD_LIBRARY_PATH}")
add_dependencies(scheduler_devices_test fake_nvml)
