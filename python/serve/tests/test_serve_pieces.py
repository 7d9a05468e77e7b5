"""Text of tokens as they come: characters at every cut of their bytes, stops at every cut of their letters."""
import random
import unittest

import tokenizers

import servers  # noqa: F401, where tfmc_serve is
from tfmc_serve.guesses import Costs, Guesser, share
from tfmc_serve.pieces import Decoder, Stops, Text
from tfmc_serve.prefixes import PAGE, Prefixes


def byte_tokenizer():
    """A token for each byte, as ByteLevel writes them, and some of two."""
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    words = {letter: i for i, letter in enumerate(letters)}
    made = tokenizers.Tokenizer(tokenizers.models.BPE(words, []))
    made.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    return made


def cuts(ids, choose):
    """The ids in steps of random sizes."""
    while ids:
        n = choose.randint(1, 4)
        yield ids[:n]
        ids = ids[n:]


class Characters(unittest.TestCase):
    def setUp(self):
        self.tokenizer = byte_tokenizer()

    def ids(self, text):
        return self.tokenizer.encode(text).ids

    def test_a_character_comes_when_all_its_bytes_are_there(self):
        text = "aé漢🙂 e\u0301\u202e\x00z"
        ids = self.ids(text)
        for start in range(len(ids)):
            decoder, found = Decoder(self.tokenizer, ids[:start]), ""
            before = self.tokenizer.decode(ids[:start])
            for i, token in enumerate(ids[start:], start + 1):
                piece = decoder.add(token)
                self.assertNotIn("\ufffd", piece)
                found += piece
                whole = self.tokenizer.decode(ids[:i])
                if not whole.endswith("\ufffd") and not before.endswith("\ufffd"):
                    self.assertEqual(before + found, whole)
            if not before.endswith("\ufffd"):
                self.assertEqual(before + found + decoder.end(), text)

    def test_bytes_that_are_no_utf8_come_after_a_while_and_at_the_end(self):
        bad = self.ids("é")[:1]
        decoder = Decoder(self.tokenizer, self.ids("a"))
        found = [decoder.add(bad[0]) for _ in range(40)]
        self.assertEqual(found[0], "")
        self.assertGreater(len("".join(found)), 0)
        self.assertEqual(len("".join(found) + decoder.end()), 40)

    def test_a_first_space_that_a_tokenizer_leaves_out_is_there(self):
        made = tokenizers.Tokenizer(tokenizers.models.WordLevel({"\u2581a": 0, "\u2581b": 1}, unk_token="\u2581a"))
        made.decoder = tokenizers.decoders.Metaspace()
        decoder = Decoder(made, [0, 1])
        self.assertEqual(decoder.add(1) + decoder.add(0), " b a")
        self.assertEqual(made.decode([1, 0]), "b a")

    def test_texts_do_not_depend_on_how_many_tokens_a_step_gives(self):
        choose = random.Random(1)
        for case in range(300):
            text = "".join(choose.choice("abé漢🙂 \n") for _ in range(choose.randint(1, 30)))
            stops = tuple("".join(choose.choice("abé漢 ") for _ in range(choose.randint(1, 4)))
                          for _ in range(choose.randint(0, 3)))
            ids, made = self.ids(text), []
            end = self.ids("z")[0]
            if choose.random() < 0.3:
                ids.insert(choose.randint(0, len(ids)), end)
            if choose.random() < 0.3:
                ids = ids[:-1]  # perhaps within a character
            for size in (1, 2, 0, len(ids) + 1):
                row, pieces = Text(self.tokenizer, self.ids("ab"), stops, frozenset([end])), []
                steps = [ids[i:i + size] for i in range(0, len(ids), size)] if size else list(cuts(list(ids), choose))
                for i, step in enumerate(steps):
                    pieces.append(row.add(0, step, i == len(steps) - 1))
                    if pieces[-1].finish:
                        break
                made.append(("".join(p.text for p in pieces), [t for p in pieces for t in p.tokens],
                             pieces[-1].finish if pieces else None, pieces[-1].stop if pieces else None))
            self.assertEqual(made, [made[0]] * 4, (text, stops))
            if not ids:
                continue
            written, tokens, finish, stop = made[0]
            whole = self.tokenizer.decode([token for token in ids if token != end] if end not in ids
                                          else ids[:ids.index(end)])
            places = sorted((whole.find(s), i) for i, s in enumerate(stops) if s in whole)
            if stop is None:
                self.assertEqual(written, whole)
                self.assertEqual(finish, "stop" if end in ids else "length")
            else:
                self.assertEqual(finish, "stop")
                self.assertEqual(written, whole[:whole.find(stop)])
                self.assertTrue(places)
            self.assertEqual(stop is None, not places, (text, stops, whole))


class StopsOfCharacters(unittest.TestCase):
    def test_stops_at_every_cut(self):
        for text, stop in (("one STOP two", "STOP"), ("aabaabaac", "aabaac"), ("\n\nx", "\n\n"), ("ababab", "bab")):
            place = text.find(stop)
            for size in range(1, len(text) + 1):
                stops, found = Stops((stop, "never")), ""
                for first in range(0, len(text), size):
                    found += stops.add(text[first:first + size])
                    self.assertTrue(text[:place].startswith(found), (text, size))
                    if stops.found:
                        break
                self.assertEqual((found, stops.found), (text[:place], stop))

    def test_what_was_held_back_is_given_at_the_end(self):
        stops = Stops(("abcd",))
        self.assertEqual((stops.add("xab"), stops.add("c"), stops.end()), ("x", "", "abc"))
        self.assertIsNone(stops.found)

    def test_the_first_of_several_ends_the_text(self):
        stops = Stops(("cd", "bc", "b"))
        self.assertEqual(stops.add("abcd"), "a")
        self.assertEqual(stops.found, "bc")


class Guesses(unittest.TestCase):
    def test_what_followed_before_is_guessed(self):
        guesser = Guesser()
        guesser.add([1, 2, 3, 4, 5, 9, 1, 2, 3])
        self.assertEqual(guesser.guess(3), [4, 5, 9])
        self.assertEqual(guesser.guess(0), [])
        guesser.add([7, 2, 3])
        self.assertEqual(guesser.guess(2), [7, 2], "the latest place, of the last two tokens")
        self.assertEqual(Guesser().guess(3), [], "nothing is known")
        repeated = Guesser()
        repeated.add([1, 2, 3, 1, 2])
        self.assertEqual(repeated.guess(7), [3, 1, 2, 3, 1, 2, 3], "as in a repetition")

    def test_behind_another_value_what_followed_is_guessed(self):
        """One token is another, then one is missing, then there is one more."""
        guesser = Guesser()
        guesser.add([1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3])
        self.assertEqual(guesser.guess(3), [4, 5, 6])
        guesser.add([40])
        self.assertEqual(guesser.guess(3), [5, 6, 7], "40 stands for 4")
        guesser.add([6])
        self.assertEqual(guesser.guess(3), [7, 8, 9], "5 is missing")
        guesser.add([7, 70])
        self.assertEqual(guesser.guess(3), [9, 1, 2])
        guesser.add([8])
        self.assertEqual(guesser.guess(3), [9, 1, 2], "70 stands before 8")
        self.assertEqual(guesser.guess_behind([9, 10], 2), [2, 3])

    def test_guesses_that_cost_more_than_they_save_rest(self):
        guesser = Guesser()
        guesser.add([1, 2] * 5)
        for _ in range(2):
            self.assertTrue(guesser.guess(2))
            guesser.learn(2, 0, 0.5)
        self.assertEqual(guesser.guess(2), [])
        guesser.add([1, 2] * 30)
        self.assertTrue(guesser.guess(2))
        guesser.learn(2, 2, 0.5)
        guesser.learn(2, 0, 1.5)
        self.assertTrue(guesser.guess(2), "what was saved may be lost")

    def test_guesses_are_made_where_they_pay(self):
        costs, rows = Costs(), [Guesser(), Guesser()]
        for row in rows:
            row.add([1, 2] * 6)
        for tokens in (1, 2, 4, 8):
            costs.learn(tokens, 1.0)  # all steps cost the same
        self.assertEqual([len(g) for g in share(costs, rows, [9, 3], 9)], [6, 3])
        self.assertEqual([len(g) for g in share(None, rows, [9, 3], 9)], [6, 3])
        self.assertEqual(sum(len(g) for g in share(None, rows, [9, 9], 4)), 4)
        self.assertEqual(share(costs, rows, [0, 0], 4), [[], []])
        dear = Costs()
        for tokens in (1, 2, 4, 8):
            dear.learn(tokens, float(tokens))
        self.assertEqual(share(dear, rows, [9, 9], 4), [[], []])
        self.assertEqual(share(costs, [], [], 4), [])


class Beginnings(unittest.TestCase):
    def test_the_longest_beginning_of_the_same_owner_is_found(self):
        prefixes = Prefixes()
        ids = list(range(100))
        prefixes.add("a", 0, ids[:40])
        prefixes.add("a", 1, ids[:PAGE] + [7] * 40)
        self.assertEqual(prefixes.find("a", ids), (0, 2 * PAGE))
        self.assertEqual(prefixes.find("a", ids[:PAGE] + [7] * PAGE + [1]), (1, 2 * PAGE))
        self.assertIsNone(prefixes.find("b", ids))
        self.assertIsNone(prefixes.find("a", ids[:PAGE - 1]))
        prefixes.add("a", 0, ids)
        self.assertEqual(prefixes.find("a", ids), (0, 96))
        prefixes.forget(0)
        self.assertEqual(prefixes.find("a", ids), (1, PAGE))
        prefixes.forget(1)
        self.assertIsNone(prefixes.find("a", ids))

    def test_a_whole_row_is_found_where_the_prompt_goes_on_behind_it(self):
        prefixes = Prefixes()
        ids = list(range(100))
        for row, tokens in enumerate((ids[:20], ids[:41], ids[:41] + [7])):
            prefixes.add("a", row, tokens)
        self.assertIsNone(prefixes.find_whole("a", ids))  # they are still written
        for row in range(3):
            prefixes.keep(row)
        self.assertEqual(prefixes.find_whole("a", ids), (1, 41))
        self.assertEqual(prefixes.find_whole("a", ids[:41]), (0, 20))  # a token must be left to be read
        self.assertIsNone(prefixes.find_whole("b", ids))
        prefixes.forget(1)
        self.assertEqual(prefixes.find_whole("a", ids), (0, 20))

    def test_random_rows_against_a_search_of_all(self):
        choose, prefixes, rows, number = random.Random(2), Prefixes(), {}, 0
        for _ in range(2000):
            kind = choose.random()
            if kind < 0.5 or not rows:
                owner, ids = choose.choice("ab"), [choose.randrange(2) for _ in range(choose.randint(0, 70))]
                if rows and choose.random() < 0.5:
                    owner, known, _ = rows[choose.choice(list(rows))]
                    ids = known[:choose.randint(0, len(known))] + ids
                prefixes.add(owner, number, ids)
                rows[number] = owner, ids, False
                number += 1
            elif kind < 0.7:
                row = choose.choice(list(rows))
                if rows[row][2]:
                    continue
                if prefixes.keep(row):
                    rows[row] = (*rows[row][:2], True)
                else:
                    self.assertLess(len(rows.pop(row)[1]), PAGE)
            elif kind < 0.8:
                oldest = prefixes.oldest()
                if oldest is not None:
                    self.assertTrue(rows.pop(oldest)[2])
            else:
                row = choose.choice(list(rows))
                prefixes.forget(row)
                del rows[row]
            self.assertEqual(len(prefixes), sum(kept for *_, kept in rows.values()))
            wanted = [choose.randrange(2) for _ in range(40)]
            if rows:
                wanted = rows[choose.choice(list(rows))][1][:50] + wanted
            def common(ids):
                n = 0
                while n < min(len(ids), len(wanted)) and ids[n] == wanted[n]:
                    n += 1
                return n // PAGE * PAGE
            best = max((common(ids) for owner, ids, _ in rows.values() if owner == "a"), default=0)
            found = prefixes.find("a", wanted)
            self.assertEqual(found[1] if found else 0, best)
            if found:
                self.assertEqual(common(rows[found[0]][1]), best)


if __name__ == "__main__":
    unittest.main()
