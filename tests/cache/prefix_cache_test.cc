// The prefix cache against a plain model of it: a list of texts and the pages that hold them.
#include "cache/prefix_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace invar {
namespace {

constexpr int64_t kPage = 64;
using Holding = PrefixCache::Holding;

// A holding for `tokens`, everything computed and published, as the scheduler would do it. Returns
// how many tokens were found.
int64_t compute(PrefixCache& cache, Holding& holding, const std::vector<int32_t>& tokens,
                const std::string& salt = "") {
  cache.attach(holding, salt);
  const auto size = static_cast<int64_t>(tokens.size());
  cache.adopt(holding, tokens, size);
  int64_t found = holding.depth * kPage;
  if (const auto copy = cache.find_copy(holding, tokens, size)) found += copy->num_tokens;
  while (static_cast<int64_t>(holding.pages.size()) * kPage < size) {
    const auto page = cache.allocate();
    if (!page) return -1;
    holding.pages.push_back(*page);
  }
  cache.publish(holding, tokens, size, true);
  return found;
}

std::vector<int32_t> count_up(int32_t from, size_t size) {
  std::vector<int32_t> tokens(size);
  for (size_t i = 0; i < size; ++i) tokens[i] = from + static_cast<int32_t>(i);
  return tokens;
}

TEST(PrefixCache, FindsFullPagesAndTheTail) {
  BlockPool pool(16);
  PrefixCache cache(pool, 16, kPage);
  auto text = count_up(0, 150);
  Holding a, b;
  EXPECT_EQ(compute(cache, a, text), 0);
  EXPECT_EQ(compute(cache, b, text), 150);
  EXPECT_EQ(a.pages[0], b.pages[0]);
  EXPECT_EQ(a.pages[1], b.pages[1]);
  EXPECT_NE(a.pages[2], b.pages[2]) << "nobody writes on another's tail";
  EXPECT_EQ(cache.num_kept_pages(), 3);
  cache.release(a);
  cache.release(b);
  EXPECT_EQ(cache.num_available(), 16);
  text[146] = -1;  // differs in the tail: what agrees is copied
  EXPECT_EQ(compute(cache, a, text), 146);
  cache.release(a);
  text[100] = -1;  // differs in the second page
  EXPECT_EQ(compute(cache, a, text), 100);
  cache.release(a);
  text[10] = -1;  // too early to be worth a copy
  EXPECT_EQ(compute(cache, a, text), 0);
  cache.release(a);
}

TEST(PrefixCache, ADuplicatePageGivesWayToTheKeptOne) {
  BlockPool pool(8);
  PrefixCache cache(pool, 8, kPage);
  const auto text = count_up(0, 64);
  Holding a, b;
  for (Holding* holding : {&a, &b}) {  // side by side, neither sees the other's page in time
    cache.attach(*holding, "");
    holding->pages.push_back(*cache.allocate());
  }
  cache.publish(a, text, 64, true);
  EXPECT_EQ(pool.num_free(), 6);
  cache.publish(b, text, 64, true);
  EXPECT_EQ(a.pages, b.pages);
  EXPECT_EQ(pool.num_free(), 7);
  EXPECT_EQ(pool.num_users(a.pages[0]), 3);
  cache.release(a);
  EXPECT_EQ(cache.num_available(), 7);
  cache.release(b);
  EXPECT_EQ(cache.num_available(), 8);
}

TEST(PrefixCache, LeastRecentlyUsedPagesGiveWayFromTheEnd) {
  BlockPool pool(6);
  PrefixCache cache(pool, 6, kPage);
  const auto old_text = count_up(0, 128), new_text = count_up(1000, 128);
  Holding holding;
  for (const auto* text : {&old_text, &new_text, &old_text, &new_text}) {
    compute(cache, holding, *text);
    cache.release(holding);
  }
  EXPECT_EQ(pool.num_free(), 2);
  for (int i = 0; i < 3; ++i) holding.pages.push_back(*cache.allocate());
  Holding found;
  cache.attach(found, "");
  cache.adopt(found, old_text, 128);
  EXPECT_EQ(found.depth, 1) << "the last page of the older text was the first to go";
  cache.release(found);
  cache.attach(found, "");
  cache.adopt(found, new_text, 128);
  EXPECT_EQ(found.depth, 2);
  cache.release(found);
  cache.release(holding);
}

TEST(PrefixCache, TheCapCountsPagesInUse) {
  BlockPool pool(10);
  PrefixCache cache(pool, 2, kPage);
  Holding a, b;
  compute(cache, a, count_up(0, 192));
  EXPECT_EQ(cache.num_kept_pages(), 2);
  compute(cache, b, count_up(5000, 64));
  EXPECT_EQ(cache.num_kept_pages(), 2) << "nothing can give way";
  cache.release(a);
  cache.release(b);
  compute(cache, b, count_up(5000, 64));
  EXPECT_EQ(cache.num_kept_pages(), 2);
  cache.release(b);
  EXPECT_EQ(compute(cache, a, count_up(5000, 64)), 64);
  cache.release(a);
  EXPECT_EQ(cache.num_available(), 10);
}

TEST(PrefixCache, OffKeepsNothing) {
  BlockPool pool(4);
  PrefixCache cache(pool, 0, kPage);
  Holding holding;
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(compute(cache, holding, count_up(0, 128)), 0);
    cache.release(holding);
    EXPECT_EQ(pool.num_free(), 4);
  }
}

TEST(PrefixCache, StatesAreFoundWhereTheTextIsTheSame) {
  BlockPool pool(16);
  StateSlots states(4);
  PrefixCache cache(pool, 16, kPage, &states);
  const auto text = count_up(0, 150);
  Holding a;
  compute(cache, a, text);
  const auto snapshot = [&](const Holding& holding, int64_t num_tokens) {
    const int32_t slot = *states.allocate();
    EXPECT_TRUE(cache.keep_state(holding, text, num_tokens, slot)) << num_tokens;
    return slot;
  };
  const int32_t at_page = snapshot(a, 64), amid = snapshot(a, 100), at_end = snapshot(a, 150);
  const int32_t spare = *states.allocate();
  EXPECT_FALSE(cache.keep_state(a, text, 100, spare)) << "there is one";
  states.release(spare);
  cache.release(a);

  const auto find = [&](std::vector<int32_t> tokens, int64_t limit) {
    Holding holding;
    cache.attach(holding, "");
    const auto hit = cache.find_state(holding, tokens, limit);
    cache.release(holding);
    return hit.value_or(PrefixCache::StateHit{});
  };
  EXPECT_EQ(find(text, 150).slot, at_end);
  EXPECT_GE(find(text, 150).page, 0);
  EXPECT_EQ(find(text, 149).slot, amid);
  EXPECT_EQ(find(text, 149).num_tokens, 100);
  EXPECT_EQ(find(text, 99).slot, at_page);
  EXPECT_EQ(find(text, 99).page, -1);
  EXPECT_EQ(find(text, 63).slot, -1);
  auto other = text;
  other[120] = -1;
  EXPECT_EQ(find(other, 150).slot, amid);
  other[99] = -1;
  EXPECT_EQ(find(other, 150).slot, at_page);
  other[63] = -1;
  EXPECT_EQ(find(other, 150).slot, -1);

  // The least recently used gives way; those of a page go with it.
  (void)find(text, 99);
  (void)find(text, 150);
  ASSERT_TRUE(states.allocate());  // the free one
  ASSERT_TRUE(states.allocate());
  EXPECT_EQ(find(text, 149).slot, at_page);
  while (cache.allocate()) {
  }
  EXPECT_EQ(states.num_snapshots(), 0);
  EXPECT_EQ(states.num_available(), 2);
}

TEST(PrefixCache, AStateStaysWhenItsPageIsSaidAgain) {
  BlockPool pool(8);
  StateSlots states(2);
  PrefixCache cache(pool, 8, kPage, &states);
  const auto text = count_up(0, 64);
  Holding a, b;
  for (Holding* holding : {&a, &b}) {
    cache.attach(*holding, "");
    holding->pages.push_back(*cache.allocate());
  }
  cache.publish(a, text, 40, true);  // a tail
  ASSERT_TRUE(cache.keep_state(a, text, 40, *states.allocate()));
  cache.release(a);
  cache.publish(b, text, 50, true);  // a longer one has the state now
  EXPECT_EQ(cache.num_kept_pages(), 1);
  const auto hit = cache.find_state(b, text, 64);
  ASSERT_TRUE(hit);
  EXPECT_EQ(hit->num_tokens, 40);
  EXPECT_EQ(hit->page, b.pages[0]);
  cache.publish(b, text, 64, true);  // and still when it is full
  cache.release(b);
  cache.attach(a, "");
  EXPECT_EQ(cache.find_state(a, text, 64)->num_tokens, 40);
  cache.release(a);
}

// Random texts over few beginnings: what is found is never wrong, and never less than the longest
// common beginning with a text whose pages cannot have been evicted.
TEST(PrefixCache, RandomTexts) {
  std::mt19937 rng(5);
  for (int round = 0; round < 200; ++round) {
    const int num_pages = 4 + static_cast<int>(rng() % 30);
    BlockPool pool(num_pages);
    StateSlots states(1 + static_cast<int>(rng() % 8));
    PrefixCache cache(pool, 1 + static_cast<int>(rng() % static_cast<unsigned>(num_pages)), kPage,
                      &states);
    std::vector<std::vector<int32_t>> state_text(8);  // behind which each slot's state is
    // What each page holds, whole history included; -1: anything.
    std::vector<std::vector<int32_t>> content(static_cast<size_t>(num_pages));
    std::vector<std::pair<Holding, std::vector<int32_t>>> live;
    for (int i = 0; i < 60; ++i) {
      if (!live.empty() && rng() % 2 == 0) {
        const size_t at = rng() % live.size();
        cache.release(live[at].first);
        live.erase(live.begin() + static_cast<ptrdiff_t>(at));
      }
      std::vector<int32_t> text(1 + rng() % 300, 0);
      for (size_t k = rng() % text.size(); k < text.size(); ++k)
        text[k] = static_cast<int32_t>(rng() % 2);
      const auto size = static_cast<int64_t>(text.size());
      Holding holding;
      cache.attach(holding, rng() % 2 == 0 ? "a" : "b");
      if (const auto hit = cache.find_state(holding, text, size)) {
        const auto end = text.begin() + static_cast<ptrdiff_t>(hit->num_tokens);
        ASSERT_EQ(state_text[static_cast<size_t>(hit->slot)],
                  std::vector<int32_t>(text.begin(), end));
        if (hit->page >= 0) {
          const auto& kept = content[static_cast<size_t>(hit->page)];
          ASSERT_GE(static_cast<int64_t>(kept.size()), hit->num_tokens);
          ASSERT_TRUE(std::equal(text.begin(), end, kept.begin()));
        }
      }
      cache.adopt(holding, text, size);
      for (size_t p = 0; p < holding.pages.size(); ++p) {
        const auto end = text.begin() + static_cast<ptrdiff_t>((p + 1) * kPage);
        ASSERT_EQ(content[static_cast<size_t>(holding.pages[p])],
                  std::vector<int32_t>(text.begin(), end));
      }
      if (const auto copy = cache.find_copy(holding, text, size)) {
        const auto& kept = content[static_cast<size_t>(copy->page)];
        const auto end = static_cast<size_t>(holding.depth * kPage + copy->num_tokens);
        ASSERT_GE(kept.size(), end);
        ASSERT_TRUE(
            std::equal(text.begin(), text.begin() + static_cast<ptrdiff_t>(end), kept.begin()));
      }
      bool fits = true;
      while (fits && static_cast<int64_t>(holding.pages.size()) * kPage < size) {
        const auto page = cache.allocate();
        fits = page.has_value();
        if (fits) holding.pages.push_back(*page);
      }
      if (!fits) {
        cache.release(holding);
        continue;
      }
      for (size_t p = static_cast<size_t>(holding.depth); p < holding.pages.size(); ++p) {
        const auto end = std::min(text.size(), (p + 1) * static_cast<size_t>(kPage));
        content[static_cast<size_t>(holding.pages[p])].assign(
            text.begin(), text.begin() + static_cast<ptrdiff_t>(end));
      }
      cache.publish(holding, text, size, rng() % 2 == 0);
      for (int k = 0; k < 2; ++k) {
        const auto slot = states.allocate();
        ASSERT_TRUE(slot);
        const size_t num_tokens = 1 + rng() % text.size();
        if (cache.keep_state(holding, text, static_cast<int64_t>(num_tokens), *slot))
          state_text[static_cast<size_t>(*slot)].assign(
              text.begin(), text.begin() + static_cast<ptrdiff_t>(num_tokens));
        else
          states.release(*slot);
      }
      live.emplace_back(std::move(holding), std::move(text));
    }
    for (auto& [holding, text] : live) cache.release(holding);
    ASSERT_EQ(cache.num_available(), num_pages);
    while (cache.allocate()) {
    }
    ASSERT_EQ(states.num_snapshots(), 0) << "a state without its page";
  }
}

}  // namespace
}  // namespace invar
