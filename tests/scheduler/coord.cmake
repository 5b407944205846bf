# Tests of what lies between the plan and the result.
add_library(tilery_coord_support STATIC coord_support.cc)
target_link_libraries(tilery_coord_support PUBLIC tilery_scheduler)

tilery_test(scheduler_queue_test grants_test.cc queue_test.cc queue_early_test.cc queue_random_test.cc queue_slow_test.cc
  LIBS tilery_coord_support)
tilery_test(scheduler_ledger_test ledger_test.cc work_lock_test.cc LIBS tilery_coord_support SQLite::SQLite3)
tilery_test(scheduler_coordinator_test
  coordinator_test.cc coordinator_attempts_test.cc coordinator_early_test.cc coordinator_faults_test.cc hosts_test.cc
  coordinator_model_test.cc model_pass_test.cc
  LIBS tilery_coord_support)
tilery_test(scheduler_kill_test coordinator_kill_test.cc LIBS tilery_coord_support)
tilery_test(scheduler_resume_test resume_test.cc sessions_test.cc status_test.cc wire_test.cc LIBS tilery_coord_support)
