# Flags of every target in the tree. They are global on purpose: two object files of one program that were
# built with different floating-point or sanitizer flags are a fault that no test finds reliably.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

set(TILERY_SANITIZE "" CACHE STRING "Sanitizers for all targets: empty, 'address;undefined' or 'thread'")

add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wall> $<$<COMPILE_LANGUAGE:CXX>:-Wextra>)
# GCC 12 sees overlaps in std::string's own operator+ where there are none (GCC bug 105651).
add_compile_options($<$<COMPILE_LANG_AND_ID:CXX,GNU>:-Wno-restrict>)

# The bytes of an output must not depend on whether the compiler fuses a*b+c, so contraction is off, and there
# is no -march=native: a binary built here gives the same bytes on every x86-64 or AArch64 host.
add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-ffp-contract=off>)

# Sources include from the root of the repository: #include "io/box.h".
include_directories("${PROJECT_SOURCE_DIR}")

# RUNPATH, not RPATH: LD_LIBRARY_PATH must be able to lead the worker to another LibTorch.
add_link_options(-Wl,--enable-new-dtags)

if(TILERY_SANITIZE)
  list(JOIN TILERY_SANITIZE "," sanitizers)
  set(flags -fsanitize=${sanitizers} -fno-omit-frame-pointer)
  if("undefined" IN_LIST TILERY_SANITIZE)
    list(APPEND flags -fno-sanitize-recover=undefined)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${flags}>")
  add_link_options(-fsanitize=${sanitizers})
endif()

# A compiler cache is used where there is one; it changes no byte of what is built.
find_program(TILERY_CCACHE ccache)
mark_as_advanced(TILERY_CCACHE)
if(TILERY_CCACHE AND NOT DEFINED CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER "${TILERY_CCACHE}")
endif()
