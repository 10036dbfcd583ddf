// Holds the generated tables, so that they are compiled once.
#include "tokenizer/unicode_tables.h"

namespace invar::unicode {
namespace {
#include "tokenizer/unicode_tables.inc"
}  // namespace

std::span<const ClassRange> char_class_ranges() { return kCharClassRanges; }
std::span<const ClassRange> combining_ranges() { return kCombiningRanges; }
std::span<const Decomposition> decompositions() { return kDecompositions; }
std::span<const Composition> compositions() { return kCompositions; }

}  // namespace invar::unicode
