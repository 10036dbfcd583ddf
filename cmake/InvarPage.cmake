# The web page of `invar serve`: web/build.mjs bundles web/src with esbuild and writes it as a C++
# source. Node.js 18 and npm, whose packages come from the npm registry, are needed for nothing else:
# where they are missing the build goes on, and "/" says how to get the page.
set(INVAR_PAGE "AUTO" CACHE STRING "The web page: ON (an error without Node.js), OFF, or AUTO")
set_property(CACHE INVAR_PAGE PROPERTY STRINGS AUTO ON OFF)

set(page_source ${PROJECT_BINARY_DIR}/page/page_assets.cc)
set(page_why "")
if(INVAR_PAGE STREQUAL "OFF")
  set(page_why "INVAR_PAGE is OFF")
elseif(INVAR_PAGE STREQUAL "AUTO" AND NOT INVAR_BUILD_APPS)
  set(page_why "no command is built")
else()
  find_program(INVAR_NODE NAMES node nodejs)
  find_program(INVAR_NPM npm)
  if(INVAR_NODE)
    execute_process(COMMAND ${INVAR_NODE} --version OUTPUT_VARIABLE node_version
                    OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    string(REGEX REPLACE "^v" "" node_version "${node_version}")
  endif()
  if(NOT INVAR_NODE OR NOT INVAR_NPM OR node_version VERSION_LESS 18)
    set(page_why "it needs Node.js 18 or newer and npm")
  endif()
endif()

if(page_why STREQUAL "")
  file(GLOB page_inputs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/web/src/*)
  set(page_optional "")
  if(NOT INVAR_PAGE STREQUAL "ON")
    set(page_optional --optional)
  endif()
  # The stamp says that the page is complete: while packages could not be installed there is none,
  # and each build tries again.
  add_custom_command(
    OUTPUT ${PROJECT_BINARY_DIR}/page/stamp
    BYPRODUCTS ${page_source}
    COMMAND ${INVAR_NODE} ${PROJECT_SOURCE_DIR}/web/build.mjs ${page_source}
            --stamp ${PROJECT_BINARY_DIR}/page/stamp ${page_optional}
    DEPENDS ${page_inputs} ${PROJECT_SOURCE_DIR}/web/build.mjs ${PROJECT_SOURCE_DIR}/web/packages.mjs
            ${PROJECT_SOURCE_DIR}/web/package-lock.json
    COMMENT "Bundling the web page"
    VERBATIM)
  add_custom_target(invar_page DEPENDS ${PROJECT_BINARY_DIR}/page/stamp)
  add_dependencies(invar_server invar_page)
  set_source_files_properties(${page_source} PROPERTIES GENERATED ON)
elseif(INVAR_PAGE STREQUAL "ON")
  message(FATAL_ERROR "The web page cannot be built: ${page_why}")
else()
  message(STATUS "Web page: left out, ${page_why}")
  file(CONFIGURE OUTPUT ${page_source} @ONLY CONTENT "// No web page in this build.
#include \"server/page_route.h\"

namespace invar::server {

std::span<const PageAsset> page_assets() { return {}; }

}  // namespace invar::server
")
endif()
target_sources(invar_server PRIVATE ${page_source})
