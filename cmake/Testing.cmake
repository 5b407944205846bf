# tilery_test(<name> <sources>... [LIBS <libraries>...] [LABELS <labels>...] [TIMEOUT <seconds>] [SERIAL]
#             [ENVIRONMENT <NAME=VALUE>...])
#
# Adds a GoogleTest program of the given sources, linked with GoogleTest, GoogleMock and its main(), as one test
# of ctest: one entry per program and not per case, since a program that loads LibTorch takes a second to start.
# SERIAL: runs with no other test beside it (it measures time, or needs all cores). The program finds the source
# tree in the environment variable TILERY_SOURCE_DIR, the built programs in TILERY_BIN_DIR, and LibTorch's libraries
# in TILERY_TORCH_LIB, and libraries of operators in TILERY_TEST_OPERATORS.

find_package(GTest REQUIRED)

set(TILERY_TEST_OPERATORS "${PROJECT_BINARY_DIR}/tests/operators")
set(TILERY_SUPPRESSIONS "${PROJECT_SOURCE_DIR}/tests/sanitizers")
set(TILERY_TEST_ENVIRONMENT
  "TILERY_SOURCE_DIR=${PROJECT_SOURCE_DIR}"
  "TILERY_BIN_DIR=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}"
  "TILERY=${CMAKE_RUNTIME_OUTPUT_DIRECTORY}/tilery"
  "TILERY_TORCH_LIB=${LibTorch_LIB_DIR}"
  "TILERY_TEST_OPERATORS=${TILERY_TEST_OPERATORS}"
  "LSAN_OPTIONS=suppressions=${TILERY_SUPPRESSIONS}/leaks.supp:print_suppressions=0"
  "TSAN_OPTIONS=suppressions=${TILERY_SUPPRESSIONS}/threads.supp:halt_on_error=1:second_deadlock_stack=1"
  "UBSAN_OPTIONS=print_stacktrace=1")

function(tilery_test name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "SERIAL" "TIMEOUT" "LIBS;LABELS;ENVIRONMENT")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 300)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS unit)
  endif()
  add_executable(${name} ${arg_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/tests/bin")
  # Tests are compiled once and run once; what they test keeps its own optimisation.
  target_compile_options(${name} PRIVATE -O1)
  target_link_libraries(${name} PRIVATE ${arg_LIBS} GTest::gmock GTest::gtest GTest::gtest_main)
  add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${arg_TIMEOUT}
    LABELS "${arg_LABELS}"
    ENVIRONMENT "${TILERY_TEST_ENVIRONMENT};${arg_ENVIRONMENT}")
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()

# tilery_pytest(<name> <file> [LABELS <labels>...] [TIMEOUT <seconds>])
#
# Adds a file of Python tests, run with pytest by TILERY_PYTHON. A file in which pytest finds no test fails:
# pytest then ends with code 5, and ctest takes only 0 for success.
function(tilery_pytest name file)
  cmake_parse_arguments(PARSE_ARGV 2 arg "SERIAL" "TIMEOUT" "LABELS")
  if(NOT arg_TIMEOUT)
    set(arg_TIMEOUT 900)
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS blackbox)
  endif()
  add_test(NAME ${name}
    COMMAND "${TILERY_PYTHON}" -m pytest -q -p no:cacheprovider "${file}"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}")
  set_tests_properties(${name} PROPERTIES
    TIMEOUT ${arg_TIMEOUT}
    LABELS "${arg_LABELS}"
    ENVIRONMENT "${TILERY_TEST_ENVIRONMENT};PYTHONDONTWRITEBYTECODE=1")
  if(arg_SERIAL)
    set_tests_properties(${name} PROPERTIES RUN_SERIAL ON)
  endif()
endfunction()
