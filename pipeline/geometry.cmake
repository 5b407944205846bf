# Pure arithmetic: tiles, windows, units and seams, slots of a batch. A library of its own, since the scheduler plans
# with it and must not link LibTorch.
add_library(tilery_geometry STATIC
  batch_slots.cc
  blocks.cc
  geometry.cc
  sparse_tiles.cc
  window.cc)
target_link_libraries(tilery_geometry PUBLIC tilery_io)
