// Tools of a Responses body (specs/api.md 9.3): functions, custom tools and namespaces become the
// functions of a chat; hosted tools, which no model here can use, are dropped with a warning.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "server/chat_body.h"

namespace invar::server {

// A tool as the caller knows it. The model sees functions only, under one rendered name each.
struct CallerTool {
  std::string name;
  std::string name_space;  // "": none, or the reserved one whose names stay bare
  bool is_custom = false;  // takes one free text
};
using CallerTools = std::map<std::string, CallerTool, std::less<>>;  // by rendered name

// "NAME__tool"; names of the namespace "functions" stay as they are.
std::string rendered_tool_name(std::string_view name_space, std::string_view name);

struct ResponsesTools {
  CallerTools tools;
  Json tools_echo = Json::array();  // those that are left, as they came
  Json choice_echo = "auto";
};

// Reads tools and tool_choice. `strict`: hosted tools are refused.
ResponsesTools read_responses_tools(Fields& fields, bool strict, ChatBody& chat,
                                    std::vector<Warning>& warnings);

}  // namespace invar::server
