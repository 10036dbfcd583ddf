# The layers above the engine: HTTP on Boost.Asio (headers only), which knows no engine, and the
# endpoints. Neither is part of libinvar.
find_package(Boost 1.81 QUIET)
if(NOT Boost_FOUND)
  message(FATAL_ERROR "`invar serve` needs Boost 1.81 or newer (headers): `apt-get install "
          "libboost1.81-dev`, or `tools/setup.sh serve`, then configure again")
endif()

invar_layer(server_http DIR src/server/http DEPS invar_base Boost::headers OpenSSL::Crypto)
invar_layer(server DEPS invar_engine invar_server_http)
include(cmake/InvarPage.cmake)
# Strangers send what these files read.
target_compile_options(invar_server_http PRIVATE -Wconversion -Wsign-conversion)
target_compile_definitions(invar_server_http PRIVATE BOOST_ASIO_NO_DEPRECATED _GLIBCXX_ASSERTIONS)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 inlines one half of Asio's allocator of coroutine frames and misses the other. Asio's
  # fences, which ThreadSanitizer does not see, stand beside mutexes that it does.
  target_compile_options(invar_server_http PRIVATE -Wno-mismatched-new-delete -Wno-tsan)
endif()
