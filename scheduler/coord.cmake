# From the plan to the result: ledger, queue, coordinator, resume.
list(APPEND TILERY_SCHEDULER_SOURCES
  coordinator.cc
  ledger.cc
  queue.cc
  sessions.cc
  settlement.cc
  sqlite.cc
  status.cc
  work_builder.cc
  work_lock.cc)
list(APPEND TILERY_SCHEDULER_LIBRARIES SQLite::SQLite3 fmt::fmt)
list(APPEND TILERY_SCHEDULER_PUBLIC tilery_wire tilery_cluster tilery_io tilery_geometry nlohmann_json::nlohmann_json)
