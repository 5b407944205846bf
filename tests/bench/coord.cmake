# Measures the scheduler alone; see the head of its source.
add_executable(scheduler_bench light_workers.cc scheduler_bench.cc)
target_link_libraries(scheduler_bench PRIVATE tilery_scheduler)
