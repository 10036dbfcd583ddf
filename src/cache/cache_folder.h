// A folder of cached files of one kind (packed weights, pages of keys and values): found, made and
// trusted only when it is ours alone; temporary files of writers that died are removed, and the
// files unused for longest when the limit is passed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cache/packed_file.h"

namespace invar {

class CacheFolder {
 public:
  struct Entry {
    std::string name;
    uint64_t num_bytes = 0;
    int64_t used_ns = 0;  // last use, since 1970
  };

  // Made with mode 0700 when it is missing and `create` is set. Refused: a link, another user's
  // folder, one that others may write to.
  // `suffix`: of the names of its files; others are left alone.
  static Result<CacheFolder> open(const std::string& path, bool create, std::string_view suffix);

  const std::string& path() const { return path_; }

  // Never follows a link. kNotFound: no such file; other errors: not ours, no file.
  Result<Descriptor> open_file(const std::string& name) const;

  // A file under a name of its own, mode 0600, locked while it is open: that is how others know
  // that its writer lives. nullopt: another process writes the same one now.
  struct Temporary {
    std::string name;
    Descriptor file;
  };
  Result<std::optional<Temporary>> create_temporary(const std::string& final_name) const;
  // Becomes `final_name`, in place of what has that name, all at once and for good.
  Result<void> publish(const Temporary& temporary, const std::string& final_name) const;
  void remove(const std::string& name) const;
  // A file that turned out damaged gets a name that is not looked at again; the one set aside
  // before it goes.
  void set_aside(const std::string& name) const;

  // Its files, the longest unused first.
  std::vector<Entry> list() const;
  void remove_abandoned() const;
  // Removes files other than `keep` until all and `num_bytes` more stay within `limit`, and says
  // whether they do. `removed` gets their names.
  bool make_room(uint64_t num_bytes, uint64_t limit, const std::string& keep,
                 std::vector<std::string>& removed) const;
  // A cache must not be what fills a disk: an error when so many bytes are more than half of what
  // the file system has left for us.
  Result<void> check_disk(uint64_t num_bytes) const;
  // Sets a file's last use, since 1970.
  void set_used(const std::string& name, int64_t used_ns) const;

 private:
  bool is_temporary(std::string_view name) const;

  std::string path_, suffix_;
  Descriptor folder_;
};

}  // namespace invar
