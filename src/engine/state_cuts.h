// Where the state of recurrent layers is worth keeping on the way through a prompt. A state is
// large and good for one position only, so there are few: where the next turn of a conversation, or
// another one with the same beginning, will still agree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace invar {

// Computing so few tokens costs no more than the step that ends at a cut, and the copy.
inline constexpr int64_t kLeastStateTokens = 64;

// Ascending, each a number of tokens from the prompt's beginning, at least 1 and less than all.
//  - before the last special token: a chat template opens the reply with it, and what follows
//    (<think>) may be gone from the history in the next turn;
//  - before the second one of the first kind that comes twice: behind the system message, which
//    other conversations share;
//  - if there is none of these, at the last beginning of a page;
//  - in long prompts now and then in between.
std::vector<int64_t> choose_state_cuts(std::span<const int32_t> prompt_ids,
                                       const Tokenizer& tokenizer);

}  // namespace invar
