# The commands of `tilery` and what they print; the program itself.
list(APPEND TILERY_SCHEDULER_SOURCES
  batch_script.cc
  bench_command.cc
  bench_files.cc
  bench_report.cc
  bench_setup.cc
  compile_client.cc
  compile_command.cc
  compiled_model.cc
  console.cc
  devices.cc
  gpu_choice.cc
  grid_report.cc
  input_hasher.cc
  inspect_grids.cc
  job_command_line.cc
  join.cc
  launch_plan.cc
  look_commands.cc
  mpi_run.cc
  numerics.cc
  package_cache.cc
  pipeline_commands.cc
  plan_command.cc
  prepare.cc
  probe_client.cc
  profile_json.cc
  python_finder.cc
  report_html.cc
  run_command.cc
  serve.cc
  signals.cc
  submit_command.cc
  tell_error.cc
  together.cc
  tuning_client.cc
  work_commands.cc
  worker_watch.cc)
list(APPEND TILERY_SCHEDULER_LIBRARIES CLI11::CLI11 spdlog::spdlog fmt::fmt nlohmann_json::nlohmann_json)
list(APPEND TILERY_SCHEDULER_PUBLIC tilery_cluster tilery_io tilery_geometry tilery_profile)
# Where this build's Python and scripts are, and which LibTorch will load what they compile.
set_source_files_properties(python_finder.cc PROPERTIES COMPILE_DEFINITIONS
  "TILERY_BUILT_PYTHON=\"${TILERY_PYTHON}\";TILERY_BUILT_TOOLS=\"${PROJECT_SOURCE_DIR}/tools\";TILERY_BUILT_TORCH=\"${LibTorch_VERSION}\"")

# Scripts for batch queues travel inside the program.
set(TILERY_BATCH_TEMPLATES "")
foreach(name IN ITEMS slurm slurm_array pbs lsf)
  set(path "${PROJECT_SOURCE_DIR}/configs/cluster/${name}.sh")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${path}")
  file(READ "${path}" text)
  string(APPEND TILERY_BATCH_TEMPLATES "    {\"${name}\", R\"====(${text})====\"},\n")
endforeach()
configure_file(batch_templates.cc.in "${CMAKE_CURRENT_BINARY_DIR}/batch_templates.cc" @ONLY)
list(APPEND TILERY_SCHEDULER_SOURCES "${CMAKE_CURRENT_BINARY_DIR}/batch_templates.cc")
