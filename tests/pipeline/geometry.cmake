tilery_test(geometry_test
  blocks_test.cc
  geometry_test.cc
  window_test.cc
  LIBS tilery_geometry)
