# The commands of `tilery` and what they print; the program itself.
list(APPEND TILERY_SCHEDULER_SOURCES
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
  input_hasher.cc
  join.cc
  launch_plan.cc
  look_commands.cc
  mpi_run.cc
  numerics.cc
  package_cache.cc
  plan_command.cc
  prepare.cc
  probe_client.cc
  profile_json.cc
  python_finder.cc
  report_html.cc
  run_command.cc
  serve.cc
  signals.cc
  tell_error.cc
  tuning_client.cc
  work_commands.cc
  worker_watch.cc)
list(APPEND TILERY_SCHEDULER_LIBRARIES spdlog::spdlog fmt::fmt nlohmann_json::nlohmann_json)
list(APPEND TILERY_SCHEDULER_PUBLIC tilery_cluster tilery_io tilery_geometry tilery_profile)
# Where this build's Python and scripts are, and which LibTorch will load what they compile.
set_source_files_properties(python_finder.cc PROPERTIES COMPILE_DEFINITIONS
  "TILERY_BUILT_PYTHON=\"${TILERY_PYTHON}\";TILERY_BUILT_TOOLS=\"${PROJECT_SOURCE_DIR}/tools\";TILERY_BUILT_TORCH=\"${LibTorch_VERSION}\"")
