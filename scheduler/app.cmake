# The commands of `tilery` and what they print; the program itself.
list(APPEND TILERY_SCHEDULER_SOURCES
  bench_command.cc
  bench_files.cc
  bench_report.cc
  bench_setup.cc
  console.cc
  input_hasher.cc
  look_commands.cc
  numerics.cc
  plan_command.cc
  prepare.cc
  probe_client.cc
  profile_json.cc
  report_html.cc
  run_command.cc
  signals.cc
  work_commands.cc)
list(APPEND TILERY_SCHEDULER_LIBRARIES spdlog::spdlog fmt::fmt nlohmann_json::nlohmann_json)
list(APPEND TILERY_SCHEDULER_PUBLIC tilery_cluster tilery_io tilery_geometry tilery_profile)
