# Finds LibTorch and defines the imported target LibTorch::LibTorch, plus
#   LibTorch_VERSION    from its version header
#   LibTorch_LIB_DIR    the folder of libtorch_cpu.so
#   LibTorch_CUDA       whether it was built with CUDA
#
# Torch's own CMake package asks for a complete system CUDA toolkit as soon as Torch was built with CUDA, and
# stops the configuration where there is none. A wheel holds all that is needed: headers, libraries, and an
# rpath to the CUDA libraries beside it.
#
# Looked for in this order: TILERY_TORCH (variable or environment: the folder that holds include/ and lib/, or
# its lib/), then the torch package of TILERY_PYTHON.

set(TILERY_TORCH "" CACHE PATH "LibTorch: the folder with include/ and lib/; empty: ask TILERY_PYTHON")

set(_torch_hints "")
if(TILERY_TORCH)
  list(APPEND _torch_hints "${TILERY_TORCH}" "${TILERY_TORCH}/..")
elseif(DEFINED ENV{TILERY_TORCH})
  list(APPEND _torch_hints "$ENV{TILERY_TORCH}" "$ENV{TILERY_TORCH}/..")
elseif(TILERY_PYTHON)
  # find_spec() finds the package without importing it: an import takes seconds.
  execute_process(
    COMMAND "${TILERY_PYTHON}" -c
      "import importlib.util as u; s = u.find_spec('torch'); print(s.submodule_search_locations[0] if s else '')"
    OUTPUT_VARIABLE _torch_package OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(APPEND _torch_hints "${_torch_package}")
endif()

# The answers of an earlier run are kept only while they lie below the folder asked for now.
foreach(_variable IN ITEMS LibTorch_INCLUDE_DIR LibTorch_cpu_LIBRARY LibTorch_c10_LIBRARY
                           LibTorch_cuda_LIBRARY LibTorch_c10_cuda_LIBRARY)
  if(NOT "${_torch_hints}" STREQUAL "${TILERY_TORCH_HINTS_USED}")
    unset(${_variable} CACHE)
  endif()
  mark_as_advanced(${_variable})
endforeach()
set(TILERY_TORCH_HINTS_USED "${_torch_hints}" CACHE INTERNAL "")

find_path(LibTorch_INCLUDE_DIR NAMES torch/script.h
  PATHS ${_torch_hints} PATH_SUFFIXES include NO_DEFAULT_PATH)
foreach(_name IN ITEMS cpu cuda)
  find_library(LibTorch_${_name}_LIBRARY torch_${_name} PATHS ${_torch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)
endforeach()
find_library(LibTorch_c10_LIBRARY c10 PATHS ${_torch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)
find_library(LibTorch_c10_cuda_LIBRARY c10_cuda PATHS ${_torch_hints} PATH_SUFFIXES lib NO_DEFAULT_PATH)

set(LibTorch_VERSION "")
foreach(_header IN ITEMS torch/headeronly/version.h torch/version.h torch/csrc/api/include/torch/version.h)
  set(_header "${LibTorch_INCLUDE_DIR}/${_header}")
  if(NOT LibTorch_VERSION AND LibTorch_INCLUDE_DIR AND EXISTS "${_header}")
    file(STRINGS "${_header}" _lines REGEX "#define TORCH_VERSION_(MAJOR|MINOR|PATCH) +[0-9]+")
    if("${_lines}" MATCHES "MAJOR +([0-9]+).*MINOR +([0-9]+).*PATCH +([0-9]+)")
      set(LibTorch_VERSION "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}.${CMAKE_MATCH_3}")
    endif()
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_cpu_LIBRARY LibTorch_c10_LIBRARY LibTorch_INCLUDE_DIR LibTorch_VERSION
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE "looked in '${_torch_hints}'. Run tools/setup (it installs torch), or name a Python \
that has torch with -DTILERY_PYTHON=FILE or the environment variable TILERY_VENV=FOLDER, or an unpacked LibTorch \
with -DTILERY_TORCH=FOLDER")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch)
  get_filename_component(LibTorch_LIB_DIR "${LibTorch_cpu_LIBRARY}" DIRECTORY)
  set(LibTorch_CUDA OFF)
  if(LibTorch_cuda_LIBRARY AND LibTorch_c10_cuda_LIBRARY)
    set(LibTorch_CUDA ON)
  endif()

  # The wheel's include/ also holds other projects' headers (fmt among them, in a version that the system's
  # spdlog cannot use). Only Torch's own folders are made visible.
  set(_torch_view "${PROJECT_BINARY_DIR}/libtorch-include")
  file(REMOVE_RECURSE "${_torch_view}")
  file(MAKE_DIRECTORY "${_torch_view}")
  foreach(_folder IN ITEMS torch ATen c10 caffe2)
    if(EXISTS "${LibTorch_INCLUDE_DIR}/${_folder}")
      file(CREATE_LINK "${LibTorch_INCLUDE_DIR}/${_folder}" "${_torch_view}/${_folder}" SYMBOLIC)
    endif()
  endforeach()

  add_library(LibTorch::LibTorch INTERFACE IMPORTED GLOBAL)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${_torch_view}" "${_torch_view}/torch/csrc/api/include")
  target_link_options(LibTorch::LibTorch INTERFACE -Wl,--allow-shlib-undefined)
  target_link_libraries(LibTorch::LibTorch INTERFACE
    -Wl,--push-state,--no-as-needed "${LibTorch_cpu_LIBRARY}" "${LibTorch_c10_LIBRARY}" -Wl,--pop-state)
  # A target of its own, for the CUDA device alone: loading libtorch_cuda and what it needs takes a process a second
  # and some 100 MB. Nothing of ours names a symbol of it (it registers its kernels when it is loaded), so the linker
  # must not drop it. Its own dependencies are found by its own rpath at run time.
  if(LibTorch_CUDA)
    add_library(LibTorch::CUDA INTERFACE IMPORTED GLOBAL)
    target_link_libraries(LibTorch::CUDA INTERFACE LibTorch::LibTorch
      -Wl,--push-state,--no-as-needed "${LibTorch_cuda_LIBRARY}" "${LibTorch_c10_cuda_LIBRARY}" -Wl,--pop-state)
  endif()
endif()
