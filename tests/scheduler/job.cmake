tilery_test(job_test
  contract_test.cc
  glob_test.cc
  input_headers_test.cc
  inputs_test.cc
  item_rules_test.cc
  job_keys_test.cc
  job_schema_test.cc
  job_test.cc
  keys_test.cc
  model_file_test.cc
  output_paths_test.cc
  plan_test.cc
  planner_test.cc
  tiling_rules_test.cc
  unit_sizing_test.cc
  LIBS tilery_scheduler libzip::zip)
