#include "server/http/listen_sockets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace invar::server {
namespace {

constexpr int kBacklog = 1024;

using AddressList = std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)>;

Result<AddressList> resolve(const std::string& host, int port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  std::string name = host;
  if (name.size() > 2 && name.front() == '[' && name.back() == ']')
    name = name.substr(1, name.size() - 2);
  const int code = ::getaddrinfo(name.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (code != 0) return io_error("host '%s': %s", host.c_str(), ::gai_strerror(code));
  return AddressList(found, ::freeaddrinfo);
}

bool is_loopback(const sockaddr* address) {
  if (address->sa_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return ntohl(v4->sin_addr.s_addr) >> 24 == 127;
  }
  if (address->sa_family != AF_INET6) return false;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
  return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr);
}

Result<ListenSocket> describe(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0)
    return io_error("descriptor %d is no socket: %s", fd, std::strerror(errno));
  ListenSocket socket;
  socket.fd = fd;
  char text[INET6_ADDRSTRLEN] = "";
  if (storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&storage);
    ::inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
    socket.port = ntohs(v4->sin_port);
    socket.address = format("%s:%d", text, socket.port);
  } else if (storage.ss_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&storage);
    ::inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
    socket.port = ntohs(v6->sin6_port);
    socket.address = format("[%s]:%d", text, socket.port);
  } else {
    return invalid_argument("descriptor %d is no TCP socket", fd);
  }
  return socket;
}

Result<ListenSocket> open_one(const std::string& host, const addrinfo& address) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return io_error("host '%s': %s", host.c_str(), std::strerror(errno));
  const int on = 1, off = 0;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.ai_family == AF_INET6) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address.ai_addr);
    const bool any = IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
    ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, any ? &off : &on, sizeof on);
  }
  const bool bound = ::bind(fd, address.ai_addr, address.ai_addrlen) == 0;
  if (!bound || ::listen(fd, kBacklog) != 0) {
    const int error = errno;
    ::close(fd);
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address.ai_addr);  // v6: same place
    return io_error("%s port %d: %s", host.c_str(), ntohs(v4->sin_port), std::strerror(error));
  }
  return describe(fd);
}

void close_all(const std::vector<ListenSocket>& sockets) {
  for (const ListenSocket& socket : sockets) ::close(socket.fd);
}

}  // namespace

Result<bool> all_loopback(const std::vector<std::string>& hosts) {
  bool all = true;
  for (const std::string& host : hosts) {
    INVAR_TRY(const AddressList addresses, resolve(host, 0));
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next)
      all = all && is_loopback(a->ai_addr);
  }
  return all;
}

Result<std::vector<ListenSocket>> open_listen_sockets(const std::vector<std::string>& hosts,
                                                      int port) {
  std::vector<ListenSocket> sockets;
  for (const std::string& host : hosts) {
    Result<AddressList> addresses = resolve(host, port);
    if (!addresses) {
      close_all(sockets);
      return addresses.error();
    }
    Error error;
    const size_t before = sockets.size();
    for (const addrinfo* a = addresses->get(); a != nullptr; a = a->ai_next) {
      // Port 0 became a number with the first socket: the others get the same one. The port stands
      // at one place in both families' addresses.
      reinterpret_cast<sockaddr_in*>(a->ai_addr)->sin_port = htons(static_cast<uint16_t>(port));
      Result<ListenSocket> socket = open_one(host, *a);
      if (!socket) {
        error = socket.error();
        // A name may have an IPv6 address on a machine without IPv6.
        if (a->ai_family == AF_INET6) continue;
        close_all(sockets);
        return error;
      }
      port = socket->port;
      sockets.push_back(*std::move(socket));
    }
    if (sockets.size() == before) {
      close_all(sockets);
      return error;
    }
  }
  if (sockets.empty()) return io_error("there is no host to listen on");
  return sockets;
}

Result<ListenSocket> adopt_listen_socket(int fd) {
  int listening = 0;
  socklen_t size = sizeof listening;
  if (::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0)
    return io_error("descriptor %d: %s", fd, std::strerror(errno));
  if (listening == 0 && ::listen(fd, kBacklog) != 0)
    return io_error("descriptor %d cannot listen: %s", fd, std::strerror(errno));
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return describe(fd);
}

bool is_loopback_socket(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) == 0 &&
         is_loopback(reinterpret_cast<const sockaddr*>(&storage));
}

}  // namespace invar::server
