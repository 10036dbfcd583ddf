// HangupWatch: tells at once when a peer has closed its side, also while unread bytes of its wait
// before the end and nothing is written. One for each I/O thread; Linux (EPOLLRDHUP).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <functional>
#include <unordered_map>

namespace invar::server {

class HangupWatch {
 public:
  explicit HangupWatch(boost::asio::io_context& context);

  // `callback` runs once, on the I/O thread, after FIN, RST or an error; at once when that has come
  // already. False: the system has no room for one more watch.
  bool add(int fd, std::function<void()> callback);
  void remove(int fd);  // before the descriptor is closed

 private:
  void wait();
  void deliver();

  boost::asio::posix::stream_descriptor epoll_;
  std::unordered_map<int, std::function<void()>> callbacks_;
};

}  // namespace invar::server
