// Where the state of recurrent layers is worth keeping on the way through a prompt. A state is
// large and good for one position only, so there are few: where the next turn of a conversation, or
// another one with the same beginning, will still agree.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace invar {

// Ascending, each a number of tokens from the prompt's beginning, at least 1 and less than all.
//  - before the last special token: a chat template opens the reply with it, and what follows
//    (<think>) may be gone from the history in the next turn;
//  - before the second one of its kind: behind the system message, which other conversations share;
//  - without special tokens, at the last beginning of a page;
//  - in long prompts now and then in between.
std::vector<int64_t> choose_state_cuts(std::span<const int32_t> prompt_ids,
                                       const Tokenizer& tokenizer);

}  // namespace invar
