# libinvar: the engine and all layers below it behind include/invar/invar.h.
#
# `invar` is for targets of this build (static layers, no install needed). `make install` puts
# libinvar.so, the two headers and a package config in place, so that elsewhere
#   find_package(invar REQUIRED)
#   target_link_libraries(my_program PRIVATE invar::invar)
# is all a program needs (docs/example, checked by tools/check_install.sh).
add_library(invar INTERFACE)
target_link_libraries(invar INTERFACE invar_engine)

set(INVAR_OBJECTS "")
foreach(layer IN LISTS INVAR_LAYERS)
  get_target_property(type ${layer} TYPE)
  if(type STREQUAL "STATIC_LIBRARY")
    list(APPEND INVAR_OBJECTS $<TARGET_OBJECTS:${layer}>)
  endif()
endforeach()

# A shared library: its own dependencies stay its own business.
add_library(invar_shared SHARED ${INVAR_OBJECTS})
target_link_libraries(invar_shared PRIVATE
  invar_flags Threads::Threads OpenSSL::Crypto PkgConfig::PCRE2)
set_target_properties(invar_shared PROPERTIES LINKER_LANGUAGE CXX)
target_include_directories(invar_shared INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(invar_shared INTERFACE cxx_std_20)
set_target_properties(invar_shared PROPERTIES
  OUTPUT_NAME invar EXPORT_NAME invar VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})

include(CMakePackageConfigHelpers)
set(INVAR_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/invar)
install(TARGETS invar_shared EXPORT invar LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
        COMPONENT library)
install(FILES ${PROJECT_SOURCE_DIR}/include/invar/invar.h
              ${PROJECT_SOURCE_DIR}/include/invar/constraint.h
              ${PROJECT_SOURCE_DIR}/include/invar/result.h
              ${PROJECT_SOURCE_DIR}/include/invar/stats.h
        DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/invar COMPONENT library)
# The export file is the whole config: nothing has to be found beside the library.
install(EXPORT invar NAMESPACE invar:: FILE invarConfig.cmake DESTINATION ${INVAR_PACKAGE_DIR}
        COMPONENT library)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/invarConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/invarConfigVersion.cmake DESTINATION ${INVAR_PACKAGE_DIR}
        COMPONENT library)
