# The CUDA backend, off by default. nvcc is called directly rather than through CMake's CUDA language:
# that one insists on linking a program with a complete toolkit, and the PyPI packages are enough.
#
# nvcc is looked for in INVAR_NVCC, on the PATH, in /usr/local/cuda and in .cache/cuda (filled by
# tools/cuda_toolchain.sh). Compiling needs no GPU. Target: invar_backend_cuda; tests: cuda_tests, with
# the label gpu, since they need a device.

option(INVAR_CUDA "Build the CUDA backend (sm_90a)" OFF)
set(INVAR_CUDA_ARCHS "90a" CACHE STRING "Compute capabilities to build for; the kernels need 90a")
if(NOT INVAR_CUDA)
  return()
endif()

file(GLOB INVAR_PYPI_NVCC
  "${PROJECT_SOURCE_DIR}/.cache/cuda/venv/lib/python3*/site-packages/nvidia/cu13/bin/nvcc")
find_program(INVAR_NVCC nvcc HINTS /usr/local/cuda/bin)
if(NOT INVAR_NVCC AND INVAR_PYPI_NVCC)
  list(GET INVAR_PYPI_NVCC 0 first_nvcc)
  set(INVAR_NVCC "${first_nvcc}" CACHE FILEPATH "nvcc" FORCE)
endif()
if(NOT INVAR_NVCC)
  message(FATAL_ERROR "INVAR_CUDA is ON but there is no nvcc: install a CUDA 13 toolkit, or run "
                      "tools/cuda_toolchain.sh (compiler only, from PyPI), or set INVAR_NVCC")
endif()
get_filename_component(nvcc_real "${INVAR_NVCC}" REALPATH)
get_filename_component(cuda_home "${nvcc_real}" DIRECTORY)
get_filename_component(cuda_home "${cuda_home}" DIRECTORY)
set(INVAR_CUDA_INCLUDE "${cuda_home}/include")
find_library(INVAR_CUDART cudart_static HINTS "${cuda_home}/lib64" "${cuda_home}/lib" REQUIRED)
message(STATUS "CUDA backend: ${INVAR_NVCC}, ${INVAR_CUDART}")

set(cuda_flags -std=c++20 -O3 -fmad=false -lineinfo -Xptxas=-warn-spills
    -Xcompiler=-ffp-contract=off,-fPIC -I${PROJECT_SOURCE_DIR}/src -I${PROJECT_SOURCE_DIR}/include)
foreach(arch IN LISTS INVAR_CUDA_ARCHS)
  list(APPEND cuda_flags -gencode=arch=compute_${arch},code=sm_${arch})
endforeach()

file(GLOB cuda_kernels CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cu)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/backend/cuda/*.cc)
set(cuda_objects)
foreach(kernel IN LISTS cuda_kernels)
  get_filename_component(name "${kernel}" NAME)
  set(object "${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.o")
  add_custom_command(
    OUTPUT ${object}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_CURRENT_BINARY_DIR}/cuda
    COMMAND ${CMAKE_COMMAND} -E env INVAR_NVCC=${INVAR_NVCC}
            ${PROJECT_SOURCE_DIR}/tools/cuda_nvcc.sh ${cuda_flags} -MD -MF ${object}.d
            -c ${kernel} -o ${object}
    DEPENDS ${kernel} ${PROJECT_SOURCE_DIR}/tools/cuda_nvcc.sh
    DEPFILE ${object}.d
    COMMENT "nvcc ${name}"
    VERBATIM)
  list(APPEND cuda_objects ${object})
endforeach()

add_library(invar_backend_cuda STATIC ${cuda_sources} ${cuda_objects})
target_link_libraries(invar_backend_cuda PUBLIC invar_flags invar_tensor ${INVAR_CUDART}
                      Threads::Threads ${CMAKE_DL_LIBS} rt)
target_include_directories(invar_backend_cuda SYSTEM PUBLIC ${INVAR_CUDA_INCLUDE})

# Called by the test folder once GoogleTest is known: the tests compile everywhere, run with a GPU.
function(invar_cuda_tests)
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/cuda/*.cc)
  add_executable(cuda_tests ${sources})
  target_link_libraries(cuda_tests PRIVATE invar_backend_cuda invar_backend_reference GTest::gtest_main)
  target_include_directories(cuda_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  add_test(NAME cuda/all COMMAND cuda_tests)
  set_tests_properties(cuda/all PROPERTIES LABELS gpu TIMEOUT 900)
  add_executable(cuda_bench ${PROJECT_SOURCE_DIR}/tools/cuda_bench.cc)
  target_link_libraries(cuda_bench PRIVATE invar_backend_cuda)
endfunction()
