// GGUF models as a Checkpoint: one file, or all parts of a split model (name-00001-of-0000N.gguf).
#include <cctype>
#include <cstdio>

#include "weights/gguf_parse.h"
#include "weights/quoted.h"
#include "weights/readers.h"

namespace invar {
namespace {

class GgufCheckpoint : public Checkpoint {
 public:
  Result<void> load(const std::string& given) {
    path = given;
    container = Container::kGguf;
    INVAR_TRY(GgufFile first, add_file(given));
    INVAR_TRY(const int64_t count, split_key(first, given, "split.count", 1));
    if (count > 1) {
      INVAR_TRY(first, load_split(given, count));
    } else {
      INVAR_TRY_VOID(add_tensors(first));
    }
    metadata = std::move(first.metadata);
    generation_config = std::move(first.generation_config);
    gguf_vocabulary = std::move(first.vocabulary);
    chat_templates = std::move(first.chat_templates);
    if (!chat_templates.empty()) chat_template_source = "gguf";
    for (const WeightFile& weights : files_) {
      files.push_back(weights.file.path());
      states.push_back(weights.file.state());
      total_file_bytes += weights.file.bytes().size();
    }
    fingerprint = weight_fingerprint(files_, "gguf");
    return {};
  }

  void drop_pages(const MatrixView& matrix) const override {
    drop_pages_of(files_, matrix.data, matrix.num_bytes());
  }

 private:
  // Maps and parses; the file is files_.back() afterwards.
  Result<GgufFile> add_file(const std::string& file_path) {
    INVAR_TRY_VOID(check_regular(file_path));
    INVAR_TRY(MappedFile file, MappedFile::open(file_path));
    INVAR_TRY_VOID(check_not_foreign(file_path, file.bytes()));
    auto parsed = parse_gguf(file.bytes());
    if (!parsed) return with_context(file_path, parsed.error());
    files_.push_back({std::move(file), parsed->data_begin});
    return parsed;
  }

  Result<void> add_tensors(const GgufFile& parsed) {
    const MappedFile& file = files_.back().file;
    const std::string name = base_name(file.path());
    for (const GgufTensor& tensor : parsed.tensors) {
      if (!index_.emplace(tensor.name, tensors_.size()).second)
        return corrupt("%s: tensor %s also stands in another part", file.path().c_str(),
                       quoted(tensor.name).c_str());
      TensorInfo info;
      info.name = tensor.name;
      info.shape = tensor.shape;
      info.matrix.name = format("%s: %s", name.c_str(), quoted(tensor.name).c_str());
      info.matrix.format = tensor.format;
      info.matrix.num_cols = tensor.shape.back();
      info.matrix.num_rows = 1;
      for (size_t i = 0; i + 1 < tensor.shape.size(); ++i) info.matrix.num_rows *= tensor.shape[i];
      info.matrix.data = file.bytes().data() + tensor.begin;
      info.matrix.row_bytes = static_cast<int64_t>(tensor.num_bytes) / info.matrix.num_rows;
      tensors_.push_back(std::move(info));
    }
    return {};
  }

  static Result<int64_t> split_key(const GgufFile& parsed, const std::string& file_path,
                                   std::string_view key, int64_t fallback) {
    auto value = parsed.metadata.optional<int64_t>(key, fallback);
    if (!value) return with_context(file_path, value.error());
    return *value;
  }

  // Reads all parts in order, so that tensors stand as in the whole model; returns part 1, which
  // has the metadata.
  Result<GgufFile> load_split(const std::string& given, int64_t count) {
    constexpr size_t kSuffix = sizeof("-00001-of-00009.gguf") - 1;
    int given_number = 0, named_count = 0, consumed = 0;
    if (given.size() > kSuffix) {
      const std::string suffix = given.substr(given.size() - kSuffix);
      if (std::sscanf(suffix.c_str(), "-%5d-of-%5d.gguf%n", &given_number, &named_count,
                      &consumed) != 2 ||
          consumed != static_cast<int>(kSuffix))
        given_number = 0;
    }
    if (given_number < 1 || named_count != count || given_number > count)
      return invalid_argument(
          "%s: is one of %lld parts of a split model, whose file names must end in "
          "-00001-of-%05lld.gguf and so on; give the parts their names back",
          given.c_str(), static_cast<long long>(count), static_cast<long long>(count));
    const std::string stem = given.substr(0, given.size() - kSuffix);
    files_.clear();
    GgufFile first;
    int64_t num_tensors = 0;
    for (int64_t part = 1; part <= count; ++part) {
      const std::string part_path =
          stem + format("-%05d-of-%05d.gguf", static_cast<int>(part), static_cast<int>(count));
      if (!file_exists(part_path))
        return not_found(
            "%s: part %lld of %lld of this split model is missing; put all parts into "
            "one folder",
            part_path.c_str(), static_cast<long long>(part), static_cast<long long>(count));
      INVAR_TRY(GgufFile parsed, add_file(part_path));
      INVAR_TRY(const int64_t number, split_key(parsed, part_path, "split.no", -1));
      INVAR_TRY(const int64_t part_count, split_key(parsed, part_path, "split.count", -1));
      if (number != part - 1 || part_count != count)
        return corrupt("%s: says it is part %lld of %lld, its name says part %lld of %lld",
                       part_path.c_str(), static_cast<long long>(number + 1),
                       static_cast<long long>(part_count), static_cast<long long>(part),
                       static_cast<long long>(count));
      INVAR_TRY_VOID(add_tensors(parsed));
      num_tensors += static_cast<int64_t>(parsed.tensors.size());
      if (part == 1) first = std::move(parsed);
    }
    INVAR_TRY(const int64_t expected, split_key(first, stem, "split.tensors.count", num_tensors));
    if (expected != num_tensors)
      return corrupt("%s: the parts have %lld tensors, 'split.tensors.count' says %lld",
                     given.c_str(), static_cast<long long>(num_tensors),
                     static_cast<long long>(expected));
    return first;
  }

  std::vector<WeightFile> files_;
};

}  // namespace

Result<std::unique_ptr<Checkpoint>> open_gguf(const std::string& path) {
  auto checkpoint = std::make_unique<GgufCheckpoint>();
  INVAR_TRY_VOID(checkpoint->load(path));
  return std::unique_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace invar
