// Safetensors files, Hugging Face and MLX folders: what must load, and what is turned away by name.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf_writer.h"
#include "safetensors_writer.h"
#include "weights/checkpoint.h"
#include "weights/safetensors_header.h"

namespace invar {
namespace {

using testing::bytes_of;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::ModelFolder;
using testing::SafetensorsWriter;

std::vector<float> row_of(const TensorInfo& tensor, int64_t r) {
  std::vector<float> row(static_cast<size_t>(tensor.matrix.num_cols));
  dequantize_row(tensor.matrix, r, row.data());
  return row;
}

std::string error_of(const std::string& path) {
  auto opened = Checkpoint::open(path);
  return opened ? "" : opened.error().message;
}

TEST(SafetensorsTest, DtypesShapesAndAnyAlignment) {
  for (size_t padding = 0; padding < 9; ++padding) {
    ModelFolder folder;
    folder.write("config.json", R"({"model_type":"llama","hidden_size":3})");
    SafetensorsWriter w;
    w.header_padding = padding;
    w.add("one", "F32", {}, bytes_of<float>({7}));
    w.add("half", "F16", {1, 3}, bytes_of<uint16_t>({0x3c00, 0xc000, 0x3800}));
    w.add("odd", "U8", {1}, {0});  // a buffer, not listed; what follows begins at an odd byte
    w.add("brain", "BF16", {2, 1, 3}, bytes_of<uint16_t>({0x3f80, 0, 0, 0, 0, 0xc000}));
    w.add("float", "F32", {2, 2}, bytes_of<float>({1, 2, 3, 4}));
    w.add("position_ids", "I64", {2}, bytes_of<int64_t>({0, 1}));
    w.add("empty", "F32", {0, 4}, {});
    w.write(folder.file("model.safetensors"));
    for (const std::string& given :
         {folder.path(), folder.path() + "/", folder.file("model.safetensors")}) {
      auto opened = Checkpoint::open(given);
      ASSERT_TRUE(opened) << opened.error().message;
      const Checkpoint& c = **opened;
      EXPECT_EQ(c.container, Container::kSafetensors);
      EXPECT_EQ(c.path, given);
      EXPECT_EQ(c.metadata.required<int>("hidden_size").value(), 3);
      ASSERT_EQ(c.tensors().size(), 4u);
      EXPECT_TRUE(c.find("one")->shape.empty());
      EXPECT_EQ(row_of(*c.find("one"), 0), std::vector<float>{7});
      EXPECT_EQ(row_of(*c.find("half"), 0), (std::vector<float>{1, -2, 0.5f}));
      EXPECT_EQ(c.find("brain")->shape, (std::vector<int64_t>{2, 1, 3}));
      EXPECT_EQ(c.find("brain")->matrix.num_rows, 2);
      EXPECT_EQ(row_of(*c.find("brain"), 1), (std::vector<float>{0, 0, -2}));
      EXPECT_EQ(row_of(*c.find("float"), 1), (std::vector<float>{3, 4}));
      EXPECT_EQ(c.find("float")->matrix.name, "model.safetensors: 'float'");
      EXPECT_TRUE(c.generation_config.is_null());
      EXPECT_TRUE(c.tokenizer_json.empty());
      c.drop_pages(c.find("float")->matrix);
    }
  }
}

void write_one(const std::string& path, const std::string& name, float value) {
  SafetensorsWriter w;
  w.add(name, "F32", {1}, bytes_of<float>({value}));
  w.write(path);
}

TEST(SafetensorsTest, ShardsWithIndexAndTheirUnion) {
  ModelFolder folder;
  folder.write("config.json", "{}");
  write_one(folder.file("model-00001-of-00002.safetensors"), "a", 1);
  SafetensorsWriter two;
  two.add("b", "F32", {1}, bytes_of<float>({2}));
  two.add("unlisted", "F32", {1}, bytes_of<float>({3}));
  two.write(folder.file("model-00002-of-00002.safetensors"));
  folder.write("model.safetensors.index.json", R"({"metadata":{"total_size":12},"weight_map":{
      "a":"model-00001-of-00002.safetensors","b":"model-00002-of-00002.safetensors",
      "nowhere":"model-00002-of-00002.safetensors"}})");
  for (const std::string& given :
       {folder.path(), folder.file("model-00002-of-00002.safetensors")}) {
    auto opened = Checkpoint::open(given);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->files.size(), 2u);
    EXPECT_EQ((*opened)->tensors().size(), 3u);
    EXPECT_NE((*opened)->find("unlisted"), nullptr);
  }
  std::filesystem::remove(folder.file("model.safetensors.index.json"));
  EXPECT_TRUE(Checkpoint::open(folder.path()));
  write_one(folder.file("model-00001-of-00002.safetensors"), "b", 1);
  EXPECT_THAT(error_of(folder.path()), HasSubstr("'b' also stands in"));
  std::filesystem::remove(folder.file("model-00001-of-00002.safetensors"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("model-00001-of-00002.safetensors: part 1 of 2"));
}

TEST(SafetensorsTest, IndexCannotReachOutside) {
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", ".hidden.safetensors",
        "a\\\\b.safetensors", "a\\u0000.safetensors", "", "x.bin"}) {
    const std::string text = std::string(R"({"weight_map":{"w":")") + name + "\"}}";
    auto parsed = parse_safetensors_index(text);
    ASSERT_FALSE(parsed) << name;
    EXPECT_THAT(parsed.error().message, HasSubstr("'w'"));
  }
  for (const char* text : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                           R"({"weight_map":{"w":1}})", R"({"weight_map":{"w":"a.safetensors"})"})
    EXPECT_FALSE(parse_safetensors_index(text)) << text;

  ModelFolder folder, outside;
  folder.write("config.json", "{}");
  folder.write("model.safetensors.index.json", R"({"weight_map":{"w":"x.safetensors"}})");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("x.safetensors: no such file"));
  write_one(outside.file("x.safetensors"), "w", 1);
  std::filesystem::create_symlink(outside.file("x.safetensors"), folder.file("x.safetensors"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("leaves the model's folder"));
  std::filesystem::remove(folder.file("x.safetensors"));
  write_one(folder.file("y.safetensors"), "w", 1);
  std::filesystem::create_symlink("y.safetensors", folder.file("x.safetensors"));
  EXPECT_EQ(error_of(folder.path()), "");
  std::filesystem::remove(folder.file("config.json"));
  outside.write("secret", "{}");
  std::filesystem::create_symlink(outside.file("secret"), folder.file("config.json"));
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json: is a link that leaves"));
}

TEST(SafetensorsTest, HuggingFaceCacheLayoutLoads) {
  ModelFolder cache;
  std::filesystem::create_directories(cache.file("snapshots/abc"));
  std::filesystem::create_directories(cache.file("blobs"));
  cache.write("blobs/1", "{}");
  write_one(cache.file("blobs/2"), "w", 1);
  std::filesystem::create_symlink("../../blobs/1", cache.file("snapshots/abc/config.json"));
  std::filesystem::create_symlink("../../blobs/2", cache.file("snapshots/abc/model.safetensors"));
  EXPECT_EQ(error_of(cache.file("snapshots/abc")), "");
  // Named templates stand one folder further down.
  cache.write("blobs/3", "named");
  std::filesystem::create_directory(cache.file("snapshots/abc/additional_chat_templates"));
  std::filesystem::create_symlink("../../blobs/3", cache.file("snapshots/abc/chat_template.jinja"));
  std::filesystem::create_symlink("../../../blobs/3",
                                  cache.file("snapshots/abc/additional_chat_templates/rag.jinja"));
  auto with_templates = Checkpoint::open(cache.file("snapshots/abc"));
  ASSERT_TRUE(with_templates) << with_templates.error().message;
  ASSERT_EQ((*with_templates)->chat_templates.size(), 2u);
  EXPECT_EQ((*with_templates)->chat_templates[1],
            (std::pair<std::string, std::string>("rag", "named")));
  std::filesystem::remove(cache.file("snapshots/abc/additional_chat_templates/rag.jinja"));
  std::filesystem::create_symlink("/etc/passwd",
                                  cache.file("snapshots/abc/additional_chat_templates/rag.jinja"));
  EXPECT_THAT(error_of(cache.file("snapshots/abc")), HasSubstr("leaves the model's folder"));
}

TEST(SafetensorsTest, SideFilesAndTemplatePriority) {
  ModelFolder folder;
  folder.write("config.json", R"({"limit":[0.0,Infinity,-Infinity,NaN],"text":"a \"NaN\" \\"})");
  write_one(folder.file("model.safetensors"), "w", 1);
  folder.write("generation_config.json", R"({"temperature":0.6,"eos_token_id":[1,2]})");
  folder.write("tokenizer.json", "{}");
  folder.write("tokenizer_config.json", R"({"chat_template":"from config","eos_token":"</s>"})");
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->metadata.dump(), R"({"limit":[0.0,null,null,null],"text":"a \"NaN\" \\"})");
  EXPECT_EQ((*opened)->generation_config.dump(), R"({"temperature":0.6,"eos_token_id":[1,2]})");
  EXPECT_EQ((*opened)->tokenizer_json, folder.file("tokenizer.json"));
  EXPECT_EQ((*opened)->tokenizer_config.required<std::string>("eos_token").value(), "</s>");
  using Templates = std::vector<std::pair<std::string, std::string>>;
  EXPECT_EQ((*opened)->chat_templates, (Templates{{"default", "from config"}}));
  EXPECT_EQ((*opened)->chat_template_source, "tokenizer_config.json");
  const std::string fingerprint = (*opened)->fingerprint;

  folder.write("tokenizer_config.json",
               R"({"chat_template":[{"name":"default","template":"d"},
                                    {"name":"tool_use","template":"t"}]})");
  opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->chat_templates, (Templates{{"default", "d"}, {"tool_use", "t"}}));
  folder.write("chat_template.jinja", "from file");
  std::filesystem::create_directory(folder.file("additional_chat_templates"));
  folder.write("additional_chat_templates/rag.jinja", "r");
  opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened);
  EXPECT_EQ((*opened)->chat_templates, (Templates{{"default", "from file"}, {"rag", "r"}}));
  EXPECT_EQ((*opened)->chat_template_source, "chat_template.jinja");
  EXPECT_EQ((*opened)->fingerprint, fingerprint);
  folder.write("config.json", "{}");
  EXPECT_NE((*Checkpoint::open(folder.path()))->fingerprint, fingerprint);

  folder.write("tokenizer_config.json", "{");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("tokenizer_config.json"));
  folder.write("config.json", "[]");
  EXPECT_THAT(error_of(folder.path()), HasSubstr("config.json: is an array"));
}

TEST(SafetensorsTest, ForeignLayoutsAreNamed) {
  struct Case {
    std::vector<std::tuple<std::string, std::string, size_t>> tensors;  // name, dtype, bytes each
    const char* expected;
  };
  const Case cases[] = {
      {{{"l.weight", "F8_E4M3", 1}, {"l.weight_scale_inv", "F32", 4}}, "FP8 in blocks"},
      {{{"l.weight", "F8_E4M3", 1}, {"l.weight_scale", "F32", 4}}, "FP8 (or MXFP8)"},
      {{{"l.weight", "U8", 1}, {"l.weight_scale_2", "F32", 4}}, "ModelOpt NVFP4"},
      {{{"l.weight_packed", "I32", 4}}, "compressed-tensors"},
      {{{"l.qweight", "I32", 4}}, "GPTQ or AWQ"},
      {{{"l.gate_up_proj_blocks", "U8", 1}}, "gpt-oss"},
      {{{"l.weight", "I8", 1}}, "int8"},
      {{{"l.weight", "F64", 8}}, "l.weight"},
      {{{"l.weight", "U32", 4}}, "integer weights"},
      {{{"l.weight", "U32", 4}, {"l.scales", "U8", 1}}, "mxfp4"},
  };
  for (const Case& c : cases) {
    ModelFolder folder;
    folder.write("config.json", "{}");
    SafetensorsWriter w;
    for (const auto& [name, dtype, size] : c.tensors)
      w.add(name, dtype, {1, 1}, std::vector<uint8_t>(size));
    w.write(folder.file("model.safetensors"));
    const std::string error = error_of(folder.path());
    EXPECT_THAT(error, HasSubstr(c.expected));
    EXPECT_THAT(error, HasSubstr("model.safetensors: '" + std::get<0>(c.tensors[0]) + "'"));
  }
}

TEST(SafetensorsTest, HeaderRules) {
  const auto error = [](const std::string& header, size_t data_bytes) {
    auto parsed =
        parse_safetensors_header(SafetensorsWriter::file(header, std::vector<uint8_t>(data_bytes)));
    return parsed ? std::string() : parsed.error().message;
  };
  const auto tensor = [](const char* dtype, const char* shape, const char* offsets) {
    return std::string(R"("w":{"dtype":")") + dtype + R"(","shape":)" + shape +
           R"(,"data_offsets":)" + offsets + "}";
  };
  EXPECT_EQ(error("{" + tensor("F32", "[2]", "[0,8]") + "}", 8), "");
  EXPECT_EQ(error("{\"__metadata__\":{\"format\":\"mlx\"}}  ", 0), "");
  EXPECT_NE(error("", 0), "");
  EXPECT_NE(error("[]", 0), "");
  EXPECT_NE(error("{\"w\":1}", 0), "");
  EXPECT_THAT(error("{" + tensor("F33", "[2]", "[0,8]") + "}", 8), HasSubstr("'F33'"));
  EXPECT_THAT(error("{" + tensor("F32", "[3]", "[0,8]") + "}", 8), HasSubstr("'w': has 8 bytes"));
  EXPECT_NE(error("{" + tensor("F32", "[-2]", "[0,8]") + "}", 8), "");
  EXPECT_NE(error("{" + tensor("F32", "[2.0]", "[0,8]") + "}", 8), "");
  EXPECT_NE(error("{" + tensor("F32", "2", "[0,8]") + "}", 8), "");
  EXPECT_NE(error("{" + tensor("F32", "[2]", "[0,8,9]") + "}", 8), "");
  EXPECT_NE(error("{" + tensor("F32", "[2]", "[8,0]") + "}", 8), "");
  EXPECT_NE(error("{" + tensor("F32", "[2]", "[-8,0]") + "}", 8), "");
  EXPECT_NE(error("{" + tensor("F32", "[4294967296,4294967296]", "[0,0]") + "}", 0), "");
  EXPECT_NE(error("{" + tensor("F32", "[4611686018427387904]", "[0,0]") + "}", 0), "");
  EXPECT_NE(error("{" + tensor("F32", "[1,1,1,1,1,1,1,1,1]", "[0,4]") + "}", 4), "");
  EXPECT_THAT(error("{" + tensor("F32", "[2]", "[0,8]") + "}", 7), HasSubstr("beyond the file"));
  EXPECT_THAT(error("{" + tensor("F32", "[2]", "[0,8]") + "}", 9), HasSubstr("1 bytes follow"));
  EXPECT_THAT(error("{" + tensor("F32", "[2]", "[4,12]") + "}", 12), HasSubstr("offset 4"));
  EXPECT_NE(
      error("{" + tensor("F32", "[2]", "[0,8]") + "," + tensor("F32", "[2]", "[8,16]") + "}", 16),
      "")
      << "a name twice";
  EXPECT_THAT(error("{" + tensor("F32", "[2]", "[0,8]") +
                        R"(,"v":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})",
                    12),
              HasSubstr("'v' begins at data offset 4"));
  EXPECT_NE(error(std::string(100, '{'), 0), "");
  EXPECT_NE(error(R"({"w":[[[[[[[[[[1]]]]]]]]]]})", 0), "");
  std::vector<uint8_t> huge(100, 0xff);
  EXPECT_FALSE(parse_safetensors_header(huge));
  EXPECT_FALSE(parse_safetensors_header({}));
}

TEST(ContainersTest, SameTensorsGiveSameValues) {
  const std::vector<float> floats = {1, -2, 0.25f, 3e-5f, 7, 1e30f};
  const auto halves = bytes_of<uint16_t>({0x3c00, 0xc000, 0x0001, 0x7bff, 0x8000, 0x3555});
  ModelFolder folder;
  GgufWriter gguf;
  gguf.add_f32("f32", {2, 3}, floats);
  gguf.add_tensor("f16", {3, 2}, 1, halves);
  gguf.add_tensor("bf16", {3, 2}, 30, halves);
  gguf.write(folder.file("m.gguf"));
  SafetensorsWriter w;
  w.add("f32", "F32", {2, 3}, bytes_of(floats));
  w.add("f16", "F16", {3, 2}, halves);
  w.add("bf16", "BF16", {3, 2}, halves);
  folder.write("config.json", "{}");
  w.write(folder.file("model.safetensors"));
  auto a = Checkpoint::open(folder.file("m.gguf"));
  auto b = Checkpoint::open(folder.file("model.safetensors"));
  ASSERT_TRUE(a && b);
  for (const TensorInfo& tensor : (*a)->tensors()) {
    const TensorInfo* other = (*b)->find(tensor.name);
    ASSERT_NE(other, nullptr);
    EXPECT_EQ(tensor.shape, other->shape);
    for (int64_t r = 0; r < tensor.matrix.num_rows; ++r)
      EXPECT_EQ(row_of(tensor, r), row_of(*other, r)) << tensor.name;
  }
}

}  // namespace
}  // namespace invar
