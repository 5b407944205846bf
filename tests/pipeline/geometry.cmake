tilery_test(geometry_test
  batch_slots_test.cc
  blocks_test.cc
  geometry_test.cc
  sparse_tiles_test.cc
  window_test.cc
  LIBS tilery_geometry)
