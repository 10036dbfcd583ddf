#include "server/http/hangup_watch.h"

#include <sys/epoll.h>

#include "base/check.h"

namespace invar::server {

HangupWatch::HangupWatch(boost::asio::io_context& context)
    : epoll_(context, ::epoll_create1(EPOLL_CLOEXEC)) {
  INVAR_CHECK(epoll_.native_handle() >= 0, "epoll_create1 fails");
  wait();
}

bool HangupWatch::add(int fd, std::function<void()> callback) {
  epoll_event event{};
  event.events = EPOLLRDHUP | EPOLLONESHOT;
  event.data.fd = fd;
  if (::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_ADD, fd, &event) != 0) return false;
  callbacks_[fd] = std::move(callback);
  return true;
}

void HangupWatch::remove(int fd) {
  if (callbacks_.erase(fd) > 0) ::epoll_ctl(epoll_.native_handle(), EPOLL_CTL_DEL, fd, nullptr);
}

void HangupWatch::wait() {
  epoll_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                    [this](const boost::system::error_code& error) {
                      if (error) return;
                      deliver();
                      wait();
                    });
}

void HangupWatch::deliver() {
  epoll_event events[64];
  for (;;) {
    const int count = ::epoll_wait(epoll_.native_handle(), events, 64, 0);
    if (count <= 0) return;
    for (int i = 0; i < count; ++i) {
      // A callback may have removed a later one.
      const auto found = callbacks_.find(events[i].data.fd);
      if (found == callbacks_.end()) continue;
      const std::function<void()> callback = found->second;
      callback();
    }
  }
}

}  // namespace invar::server
