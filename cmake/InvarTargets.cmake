# Compiler flags for everything, and invar_layer(): one static library per folder of src/.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

find_program(INVAR_CCACHE ccache)
if(INVAR_CCACHE)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${INVAR_CCACHE})
endif()

add_library(invar_flags INTERFACE)
# No contraction: a product and a sum become one fma only where the source says fma, so that the same
# bits come out of every compiler and instruction set (docs/numerics.md).
target_compile_options(invar_flags INTERFACE -ffp-contract=off -Wall -Wextra -Wshadow
                       -fstack-protector-strong)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  # GCC 12 reports overlaps of std::string (GCC bug 105651) and unset members of std::variant that
  # cannot happen.
  target_compile_options(invar_flags INTERFACE -Wno-restrict -Wno-maybe-uninitialized
                         $<$<NOT:$<CONFIG:Debug>>:-Wno-array-bounds>)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  # std::stable_sort of GCC 12's library calls what that library calls deprecated.
  target_compile_options(invar_flags INTERFACE -Wno-deprecated-declarations)
endif()
if(INVAR_WERROR)
  target_compile_options(invar_flags INTERFACE -Werror)
endif()
if(INVAR_SANITIZE)
  target_compile_options(invar_flags INTERFACE -fsanitize=${INVAR_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(invar_flags INTERFACE -fsanitize=${INVAR_SANITIZE})
else()
  target_compile_options(invar_flags INTERFACE $<$<CONFIG:Release>:-D_FORTIFY_SOURCE=2>)
endif()
target_compile_definitions(invar_flags INTERFACE INVAR_VERSION="${PROJECT_VERSION}")
target_include_directories(invar_flags INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>)

# The headers that most files include, compiled once for all folders.
if(INVAR_PCH)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled.cc CONTENT "")
  add_library(invar_precompiled OBJECT ${PROJECT_BINARY_DIR}/precompiled.cc)
  target_link_libraries(invar_precompiled PRIVATE invar_flags)
  target_precompile_headers(invar_precompiled PRIVATE <algorithm> <functional> <memory> <optional>
                            <span> <string> <string_view> <unordered_map> <vector>)
endif()

# Kernels are fast in every build type; tools/check_compilers.sh takes other levels.
set(INVAR_KERNEL_LEVEL "-O3" CACHE STRING "Optimisation of the files with an instruction set")

# On AArch64 GCC 12 moves loads up before it hands out registers and then spills sums; ARM kernels are
# written in the order in which registers suffice.
set(INVAR_IN_ORDER $<$<CXX_COMPILER_ID:GNU>:-fno-schedule-insns>)

# Sources that this build has no use for: other architectures' kernels, and one of base/hash.h's two
# implementations.
set(INVAR_LEFT_OUT "")
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64|ARM64)$")
  list(APPEND INVAR_LEFT_OUT "_neon\\.cc$" "_i8mm\\.cc$")
endif()
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  list(APPEND INVAR_LEFT_OUT "_avx[0-9a-z]*\\.cc$")
endif()
if(INVAR_CORE_ONLY)
  list(APPEND INVAR_LEFT_OUT "/base/hash\\.cc$")
else()
  list(APPEND INVAR_LEFT_OUT "/base/hash_plain\\.cc$")
endif()

# invar_layer(name [DIR folder] DEPS targets...): static library invar_<name> of all sources in the
# folder. A file that ends in _avx2.cc, _avxvnni.cc, _avx512.cc, _neon.cc or _i8mm.cc is compiled for
# that set, and only such a file: what runs is chosen at run time. INVAR_CORE_ONLY leaves out layers
# whose libraries are not there.
set(INVAR_LAYERS "" CACHE INTERNAL "")
function(invar_layer name)
  cmake_parse_arguments(ARG "" "DIR" "DEPS" ${ARGN})
  foreach(dep IN LISTS ARG_DEPS)
    if(INVAR_CORE_ONLY AND NOT TARGET ${dep})
      return()
    endif()
  endforeach()
  if(NOT ARG_DIR)
    set(ARG_DIR src/${name})
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${ARG_DIR}/*.cc)
  if(NOT INVAR_AVX512)
    list(FILTER sources EXCLUDE REGEX "_avx512\\.cc$")
  endif()
  if(NOT INVAR_AVXVNNI)
    list(FILTER sources EXCLUDE REGEX "_avxvnni\\.cc$")
  endif()
  foreach(pattern IN LISTS INVAR_LEFT_OUT)
    list(FILTER sources EXCLUDE REGEX "${pattern}")
  endforeach()
  if(sources)
    add_library(invar_${name} STATIC ${sources})
    target_link_libraries(invar_${name} PUBLIC invar_flags ${ARG_DEPS})
    if(NOT INVAR_AVX512)
      target_compile_definitions(invar_${name} PRIVATE INVAR_NO_AVX512)
    endif()
    if(NOT INVAR_AVXVNNI)
      target_compile_definitions(invar_${name} PRIVATE INVAR_NO_AVXVNNI)
    endif()
    if(INVAR_PCH)
      target_precompile_headers(invar_${name} REUSE_FROM invar_precompiled)
    endif()
  else()
    add_library(invar_${name} INTERFACE)
    target_link_libraries(invar_${name} INTERFACE invar_flags ${ARG_DEPS})
  endif()
  foreach(source IN LISTS sources)
    if(source MATCHES "_avx2\\.cc$")
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
        COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;${INVAR_KERNEL_LEVEL}")
    elseif(source MATCHES "_avxvnni\\.cc$")
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
        COMPILE_OPTIONS "-mavx2;-mfma;-mf16c;-mavxvnni;${INVAR_KERNEL_LEVEL}")
    # GCC 12 takes the undefined operands of its own AVX-512 headers for mistakes (GCC bug 105593).
    elseif(source MATCHES "_avx512\\.cc$")
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON COMPILE_OPTIONS
        "-mavx2;-mfma;-mf16c;-mavx512f;-mavx512bw;-mavx512dq;-mavx512vl;-mavx512vnni;-mprefer-vector-width=512;${INVAR_KERNEL_LEVEL};-Wno-uninitialized")
    elseif(source MATCHES "_neon\\.cc$")
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
        COMPILE_OPTIONS "-march=armv8.2-a+dotprod;${INVAR_KERNEL_LEVEL};${INVAR_IN_ORDER}")
    elseif(source MATCHES "_i8mm\\.cc$")
      set_source_files_properties(${source} PROPERTIES SKIP_PRECOMPILE_HEADERS ON
        COMPILE_OPTIONS "-march=armv8.2-a+dotprod+i8mm;${INVAR_KERNEL_LEVEL};${INVAR_IN_ORDER}")
    endif()
  endforeach()
  set(INVAR_LAYERS ${INVAR_LAYERS} invar_${name} CACHE INTERNAL "")
endfunction()

# invar_test(folder DEPS targets...): one GoogleTest program of all tests/<folder>/*_test.cc.
function(invar_test folder)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  foreach(dep IN LISTS ARG_DEPS)
    if(INVAR_CORE_ONLY AND NOT TARGET ${dep})
      return()
    endif()
  endforeach()
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${folder}_tests ${sources})
  target_link_libraries(${folder}_tests PRIVATE ${ARG_DEPS} GTest::gtest_main GTest::gmock)
  target_include_directories(${folder}_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${folder}_tests PRIVATE
    INVAR_TEST_DATA="${PROJECT_SOURCE_DIR}/tests" INVAR_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  gtest_discover_tests(${folder}_tests TEST_PREFIX ${folder}/ DISCOVERY_MODE PRE_TEST
                       PROPERTIES TIMEOUT 900 LABELS ${folder})
endfunction()
