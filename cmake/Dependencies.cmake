# The libraries that every build needs. tools/setup installs their packages. Link them by these targets:
#
#   Threads::Threads  Boost::headers (Asio)  spdlog::spdlog  nlohmann_json::nlohmann_json  yaml-cpp::yaml-cpp
#   CLI11::CLI11  SQLite::SQLite3  ZLIB::ZLIB  PNG::PNG  JPEG::JPEG  TIFF::TIFF  xxHash::xxhash  libzip::zip
#   blosc::blosc
#   LibTorch::LibTorch (only the worker's side: `tilery` must not link it), LibTorch::CUDA (the CUDA device alone)

# tilery_find_plain(<target> <header> <library> <package>): an imported target for a library whose own CMake
# package is missing or broken in the distributions (Debian's libzip asks for tools in other packages).
function(tilery_find_plain target header library package)
  string(MAKE_C_IDENTIFIER "${library}" id)
  find_path(TILERY_${id}_INCLUDE ${header})
  find_library(TILERY_${id}_LIBRARY ${library})
  mark_as_advanced(TILERY_${id}_INCLUDE TILERY_${id}_LIBRARY)
  if(NOT TILERY_${id}_INCLUDE OR NOT TILERY_${id}_LIBRARY)
    message(FATAL_ERROR "${library} was not found (${header}): install ${package}, or run tools/setup")
  endif()
  add_library(${target} UNKNOWN IMPORTED GLOBAL)
  set_target_properties(${target} PROPERTIES
    IMPORTED_LOCATION "${TILERY_${id}_LIBRARY}"
    INTERFACE_INCLUDE_DIRECTORIES "${TILERY_${id}_INCLUDE}")
endfunction()

set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)
find_package(Boost 1.74 CONFIG REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(SQLite3 REQUIRED)
find_package(ZLIB REQUIRED)
find_package(PNG REQUIRED)
find_package(JPEG REQUIRED)
find_package(TIFF REQUIRED)
tilery_find_plain(xxHash::xxhash xxhash.h xxhash libxxhash-dev)
tilery_find_plain(libzip::zip zip.h zip libzip-dev)
tilery_find_plain(blosc::blosc blosc.h blosc libblosc-dev)

# yaml-cpp before 0.8 calls its target yaml-cpp.
if(NOT TARGET yaml-cpp::yaml-cpp)
  add_library(yaml-cpp::yaml-cpp INTERFACE IMPORTED GLOBAL)
  target_link_libraries(yaml-cpp::yaml-cpp INTERFACE yaml-cpp)
endif()

# The Python of the project: it has Torch, and pytest for the black-box tests. In this order: TILERY_PYTHON, the
# environment of tools/setup (TILERY_VENV or .venv), an active virtual environment, python3.
set(TILERY_PYTHON "" CACHE FILEPATH "Python with torch and pytest; empty: look for it")
if(NOT TILERY_PYTHON)
  unset(found_python CACHE)
  find_program(found_python NAMES python3 python NO_CACHE NO_DEFAULT_PATH
    PATHS "$ENV{TILERY_VENV}/bin" "${PROJECT_SOURCE_DIR}/.venv/bin" "$ENV{VIRTUAL_ENV}/bin")
  if(NOT found_python)
    find_program(found_python NAMES python3 NO_CACHE REQUIRED)
  endif()
  set(TILERY_PYTHON "${found_python}" CACHE FILEPATH "Python with torch and pytest; empty: look for it" FORCE)
endif()

find_package(LibTorch 2.9 REQUIRED)
