# The CUDA compiler and runtime. The .cu files include no Torch and are compiled wherever an nvcc is found,
# also on hosts that have no GPU: code that nobody compiles does not stay correct.
#
# nvcc comes from CMAKE_CUDA_COMPILER, CUDACXX, PATH, /usr/local/cuda, or PyPI's packages (which tools/setup
# installs beside torch where there is no other). Defines the target tilery_cudart: the runtime that Torch uses
# too, as a shared library, so that both see one CUDA context.

# The pinned LibTorch is built for CUDA 13. A distribution's older nvcc in the PATH is passed over, as tools/setup does;
# whoever wants it all the same sets CMAKE_CUDA_COMPILER.
function(tilery_nvcc_is_new_enough result file)
  execute_process(COMMAND "${file}" --version OUTPUT_VARIABLE said ERROR_QUIET)
  if(NOT said MATCHES "release ([0-9]+)" OR CMAKE_MATCH_1 LESS 13)
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

if(NOT CMAKE_CUDA_COMPILER)
  cmake_path(GET LibTorch_INCLUDE_DIR PARENT_PATH torch_package)
  cmake_path(GET torch_package PARENT_PATH site_packages)
  find_program(TILERY_NVCC NAMES "$ENV{CUDACXX}" nvcc
    HINTS ENV CUDA_HOME ENV CUDA_PATH
    PATHS /usr/local/cuda "${site_packages}/nvidia/cu13" PATH_SUFFIXES bin
    VALIDATOR tilery_nvcc_is_new_enough)
  mark_as_advanced(TILERY_NVCC)
  if(TILERY_NVCC)
    set(CMAKE_CUDA_COMPILER "${TILERY_NVCC}" CACHE FILEPATH "The CUDA compiler")
  endif()
endif()

if(NOT CMAKE_CUDA_COMPILER)
  tilery_missing(CUDA "no nvcc of CUDA 13 was found (run tools/setup, or set CUDACXX)")
  return()
endif()

# Turing is the oldest card that CUDA 13 knows. Machine code for the cards that are in use in data centres;
# the intermediate code for compute capability 7.5 serves all other cards from Turing on, and newer ones run
# the last entry's. Real code for every card would make the archive larger than it may be.
if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES)
  set(CMAKE_CUDA_ARCHITECTURES 75-virtual 80-real 86-real 89-real 90-real 120
    CACHE STRING "GPU architectures of the .cu files")
endif()

# The packages on PyPI have lib/ where a toolkit has lib64/, so nvcc does not find its own runtime without help.
get_filename_component(nvcc_real "${CMAKE_CUDA_COMPILER}" REALPATH)
cmake_path(GET nvcc_real PARENT_PATH cuda_root)
cmake_path(GET cuda_root PARENT_PATH cuda_root)
if(EXISTS "${cuda_root}/lib/libcudart.so.13" OR EXISTS "${cuda_root}/lib/libcudart_static.a")
  string(APPEND CMAKE_CUDA_FLAGS_INIT " -L${cuda_root}/lib")
endif()

set(CMAKE_CUDA_STANDARD 17)  # CMake 3.25 knows no C++20 for nvcc 13
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # tilery_cudart instead
enable_language(CUDA)

find_library(TILERY_cudart_LIBRARY NAMES cudart libcudart.so.13 libcudart.so.12
  HINTS "${cuda_root}" PATH_SUFFIXES lib64 lib NO_DEFAULT_PATH)
mark_as_advanced(TILERY_cudart_LIBRARY)
if(NOT TILERY_cudart_LIBRARY)
  tilery_missing(CUDA "nvcc is ${CMAKE_CUDA_COMPILER}, but there is no libcudart.so below ${cuda_root}")
  return()
endif()
add_library(tilery_cudart INTERFACE)
target_include_directories(tilery_cudart SYSTEM INTERFACE "${cuda_root}/include")
target_link_libraries(tilery_cudart INTERFACE "${TILERY_cudart_LIBRARY}")

# Marks for profilers; headers only, which Torch's own packages bring where the toolkit has none.
cmake_path(GET LibTorch_INCLUDE_DIR PARENT_PATH nvtx_package)
cmake_path(GET nvtx_package PARENT_PATH nvtx_packages)
find_path(TILERY_nvtx_INCLUDE nvtx3/nvToolsExt.h
  HINTS "${cuda_root}/include" "${nvtx_packages}/nvidia/cu13/include" NO_DEFAULT_PATH)
mark_as_advanced(TILERY_nvtx_INCLUDE)
if(NOT TILERY_nvtx_INCLUDE)
  tilery_missing(CUDA "nvtx3/nvToolsExt.h was found neither below ${cuda_root} nor beside Torch (pip install nvidia-nvtx)")
  return()
endif()
target_include_directories(tilery_cudart SYSTEM INTERFACE "${TILERY_nvtx_INCLUDE}")

# NCCL's header, which Torch's own packages bring, too. The library is loaded at run time. Without it workers read
# models from files.
find_path(TILERY_nccl_INCLUDE nccl.h HINTS "${nvtx_packages}/nvidia/nccl/include" "${cuda_root}/include")
mark_as_advanced(TILERY_nccl_INCLUDE)

# As on the CPU: no fused multiply-add, so both devices give the same bytes.
add_compile_options($<$<COMPILE_LANGUAGE:CUDA>:--fmad=false>)

set(TILERY_HAVE_CUDA ON)
set(TILERY_NOTE_CUDA "nvcc ${CMAKE_CUDA_COMPILER_VERSION} for ${CMAKE_CUDA_ARCHITECTURES}: ${CMAKE_CUDA_COMPILER}")
