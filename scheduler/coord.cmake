# Queue, ledger, coordinator, resume: from the plan to the result.
list(APPEND TILERY_SCHEDULER_SOURCES
  checkpointer.cc
  coordinator.cc
  grants.cc
  host_links.cc
  hosts.cc
  ledger.cc
  model_pass.cc
  queue.cc
  queue_slow.cc
  queue_workers.cc
  resume.cc
  sessions.cc
  settlement.cc
  sqlite.cc
  status.cc
  sweep.cc
  unit_pace.cc
  work_builder.cc
  work_lock.cc)
list(APPEND TILERY_SCHEDULER_LIBRARIES SQLite::SQLite3 Threads::Threads)
list(APPEND TILERY_SCHEDULER_PUBLIC tilery_io tilery_geometry tilery_cluster nlohmann_json::nlohmann_json)
