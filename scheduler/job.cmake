# Job, inputs, model file and plan.
list(APPEND TILERY_SCHEDULER_SOURCES
  contract.cc
  glob.cc
  grid_plan.cc
  input_headers.cc
  inputs.cc
  item_rules.cc
  job.cc
  job_execution.cc
  job_flatten.cc
  job_grids.cc
  job_keys.cc
  job_output.cc
  job_paths.cc
  job_post.cc
  job_schema.cc
  job_value.cc
  job_yaml.cc
  keys.cc
  model_file.cc
  output_paths.cc
  pipeline.cc
  planner.cc
  tiling_rules.cc
  transfer_rules.cc
  unit_sizing.cc
  words.cc)
list(APPEND TILERY_SCHEDULER_LIBRARIES yaml-cpp::yaml-cpp nlohmann_json::nlohmann_json libzip::zip)
list(APPEND TILERY_SCHEDULER_PUBLIC tilery_io tilery_geometry tilery_codec)
