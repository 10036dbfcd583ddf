// The table of the string automaton, and the same as a dense array for walks.
#include "constraint/string_automaton.h"

#include <array>

namespace invar {
namespace {

constexpr StringEdge kEdges[] = {
    {kStringOpen, '"', '"', kStringBody, false},
    {kStringBody, '"', '"', kStringEnd, false},
    {kStringBody, 0x20, 0x21, kStringBody, true},
    {kStringBody, 0x23, 0x5B, kStringBody, true},
    {kStringBody, 0x5D, 0x7F, kStringBody, true},
    {kStringBody, '\\', '\\', kStringEscape, true},
    // Table 3-7 of the Unicode Standard.
    {kStringBody, 0xC2, 0xDF, kStringTail1, true},
    {kStringBody, 0xE0, 0xE0, kStringE0, true},
    {kStringBody, 0xE1, 0xEC, kStringTail2, true},
    {kStringBody, 0xED, 0xED, kStringED, true},
    {kStringBody, 0xEE, 0xEF, kStringTail2, true},
    {kStringBody, 0xF0, 0xF0, kStringF0, true},
    {kStringBody, 0xF1, 0xF3, kStringTail3, true},
    {kStringBody, 0xF4, 0xF4, kStringF4, true},
    {kStringTail1, 0x80, 0xBF, kStringBody, false},
    {kStringTail2, 0x80, 0xBF, kStringTail1, false},
    {kStringTail3, 0x80, 0xBF, kStringTail2, false},
    {kStringE0, 0xA0, 0xBF, kStringTail1, false},
    {kStringED, 0x80, 0x9F, kStringTail1, false},
    {kStringF0, 0x90, 0xBF, kStringTail2, false},
    {kStringF4, 0x80, 0x8F, kStringTail2, false},
    {kStringEscape, '"', '"', kStringBody, false},
    {kStringEscape, '\\', '\\', kStringBody, false},
    {kStringEscape, '/', '/', kStringBody, false},
    {kStringEscape, 'b', 'b', kStringBody, false},
    {kStringEscape, 'f', 'f', kStringBody, false},
    {kStringEscape, 'n', 'n', kStringBody, false},
    {kStringEscape, 'r', 'r', kStringBody, false},
    {kStringEscape, 't', 't', kStringBody, false},
    {kStringEscape, 'u', 'u', kStringHex4, false},
    {kStringHex4, '0', '9', kStringHex3, false},
    {kStringHex4, 'a', 'c', kStringHex3, false},
    {kStringHex4, 'A', 'C', kStringHex3, false},
    {kStringHex4, 'e', 'f', kStringHex3, false},
    {kStringHex4, 'E', 'F', kStringHex3, false},
    {kStringHex4, 'd', 'd', kStringHexD, false},
    {kStringHex4, 'D', 'D', kStringHexD, false},
    {kStringHex3, '0', '9', kStringHex2, false},
    {kStringHex3, 'a', 'f', kStringHex2, false},
    {kStringHex3, 'A', 'F', kStringHex2, false},
    {kStringHex2, '0', '9', kStringHex1, false},
    {kStringHex2, 'a', 'f', kStringHex1, false},
    {kStringHex2, 'A', 'F', kStringHex1, false},
    {kStringHex1, '0', '9', kStringBody, false},
    {kStringHex1, 'a', 'f', kStringBody, false},
    {kStringHex1, 'A', 'F', kStringBody, false},
    {kStringHexD, '0', '7', kStringHex2, false},
    {kStringHexD, '8', '9', kStringHigh2, false},
    {kStringHexD, 'a', 'b', kStringHigh2, false},
    {kStringHexD, 'A', 'B', kStringHigh2, false},
    {kStringHigh2, '0', '9', kStringHigh1, false},
    {kStringHigh2, 'a', 'f', kStringHigh1, false},
    {kStringHigh2, 'A', 'F', kStringHigh1, false},
    {kStringHigh1, '0', '9', kStringPairEscape, false},
    {kStringHigh1, 'a', 'f', kStringPairEscape, false},
    {kStringHigh1, 'A', 'F', kStringPairEscape, false},
    {kStringPairEscape, '\\', '\\', kStringPairU, false},
    {kStringPairU, 'u', 'u', kStringPairD, false},
    {kStringPairD, 'd', 'd', kStringPairHex, false},
    {kStringPairD, 'D', 'D', kStringPairHex, false},
    {kStringPairHex, 'c', 'f', kStringHex2, false},
    {kStringPairHex, 'C', 'F', kStringHex2, false},
};

struct Table {
  std::array<std::array<uint8_t, 256>, kNumStringStates> next;  // bit 7: counts
};

constexpr Table make_table() {
  Table table = {};
  for (auto& row : table.next)
    for (uint8_t& entry : row) entry = kNumStringStates;
  for (const StringEdge& edge : kEdges)
    for (int byte = edge.low; byte <= edge.high; ++byte)
      table.next[edge.from][static_cast<size_t>(byte)] =
          static_cast<uint8_t>(edge.to | (edge.counts ? 0x80 : 0));
  return table;
}
constexpr Table kTable = make_table();

}  // namespace

std::span<const StringEdge> string_edges() { return kEdges; }

StringState next_string_state(StringState state, uint8_t byte, bool& counts) {
  const uint8_t entry = kTable.next[state][byte];
  counts = (entry & 0x80) != 0;
  return static_cast<StringState>(entry & 0x7F);
}

}  // namespace invar
