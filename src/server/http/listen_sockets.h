// Listening sockets: host names to bound descriptors. Plain POSIX; who accepts is http_server.cc.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace invar::server {

struct ListenSocket {
  int fd = -1;
  std::string address = {};  // "127.0.0.1:8080", "[::1]:8080"
  int port = 0;
};

// Whether every address of every host is this machine's own loopback. A name that does not resolve
// is an error.
Result<bool> all_loopback(const std::vector<std::string>& hosts);

// One socket an address. Port 0: any free one, the same for all. "::" also takes IPv4.
Result<std::vector<ListenSocket>> open_listen_sockets(const std::vector<std::string>& hosts,
                                                      int port);

// A bound socket that we were started with.
Result<ListenSocket> adopt_listen_socket(int fd);
// Whether it is bound to a loopback address only.
bool is_loopback_socket(int fd);

}  // namespace invar::server
