// Unicode normalization form C, with the character data that Hugging Face's tokenizers apply.
#pragma once

#include <string>
#include <string_view>

namespace invar {

// `text` in NFC. Bytes that are no valid UTF-8 stay as they are and act as starters. Linear.
std::string nfc(std::string_view text);

// True when nfc(text) == text is certain; false means "maybe not".
bool nfc_quick_check(std::string_view text);

}  // namespace invar
