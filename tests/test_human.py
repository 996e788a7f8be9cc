"Human-written text: pairing, intervals over sources, freezing without text, and that no sentence of the public sets is in the repository."
import gzip, json, math, random, subprocess
from collections import Counter
from pathlib import Path
import numpy as np
import pytest
from hypothesis import given, strategies as st
from conftest import Toy, even, fast, few
from test_importer import ENGLISH, external, folder_of, sentence
from polyroute import human as h, importer as im
from polyroute.items import DataError, Dataset, Item, Question
from polyroute.predictions import Header, Predictions, find_predictions, frozen, predictions_path
from polyroute.significance import bootstrap_mean, mcnemar_exact
from polyroute.systems import UnsupportedQuestion

AB = Question('intent', 'choice', 'Which?', (('a', 'one'), ('b', 'two')))


def answers_to(name, rows, system='toy'):
    "Predictions on made-up items: rows of (pair, cluster, gold, right)."
    items = [Item(f'{name}-{n}', '', AB, g, None, dict(pair=p, cluster=c) if p else dict(cluster=c)) for n, (p, c, g, _) in enumerate(rows)]
    probs = np.array([[.9, .1] if (g == 'a') == bool(r) else [.1, .9] for _, _, g, r in rows]).reshape(-1, 2)
    return Predictions(Header(system, name, 'x', {'intent': ['a', 'b']}), Dataset(name, items, 'x'), probs)


VERSIONS = st.lists(st.tuples(st.integers(0, 5), st.booleans()), min_size=1, max_size=30)


# Intervals and pairing

@few
@given(VERSIONS)
def test_means_over_sources_are_cluster_bootstraps(rows):
    x, c = np.array([r for _, r in rows]), np.array([f's{k}' for k, _ in rows])
    assert h.parallel_macro([(x, c)]) == pytest.approx(bootstrap_mean(x, clusters=c))


def test_sources_are_drawn_together_in_all_languages():
    x, c = np.array([1, 1, 0, 0, 1, 0]), np.arange(6)
    assert h.parallel_macro([(x, c), (x, c)]) == pytest.approx(bootstrap_mean(x, clusters=c))         # a copy adds nothing
    other = h.parallel_macro([(x, c), (1 - x, c)])
    assert (other.value, other.lo, other.hi) == pytest.approx((.5, .5, .5))                 # and its opposite takes all doubt away


@fast
@given(rights=st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_one_version_a_source_is_mcnemar(rights):
    first = answers_to('first', [(f'e{n}', f'c{n}', 'a', r) for n, (r, _) in enumerate(rights)])
    english = answers_to('english', [(f'e{n}', f'c{n}', 'a', r) for n, (_, r) in reversed(list(enumerate(rights)))])     # another order of the file
    g = h.paired(first, english)
    wins, losses = sum(a and not b for a, b in rights), sum(b and not a for a, b in rights)
    assert (g.wins, g.losses, g.p) == (wins, losses, mcnemar_exact(wins, losses)) and g.difference.value == pytest.approx((wins - losses)/len(rights))


@few
@given(VERSIONS)
def test_versions_of_a_sentence_are_one_source(rows):
    "Brute force over sources: eleven versions vote together, they do not weigh eleven times."
    english = {k: k % 2 == 0 for k, _ in rows}
    g = h.paired(answers_to('no', [(f'e{k}', f'c{k}', 'a', r) for k, r in rows]), answers_to('en', [(f'e{k}', f'c{k}', 'a', r) for k, r in english.items()]))
    gap = {k: sum(r - english[k] for j, r in rows if j == k) for k in english}
    assert (g.sources, g.wins, g.losses) == (len(english), sum(v > 0 for v in gap.values()), sum(v < 0 for v in gap.values())) and g.pairs == len(rows)


def test_unpaired_sentences_are_refused_by_id():
    english = answers_to('en', [('e0', 'c0', 'a', 1), ('e1', 'c1', 'a', 1)])
    odd = answers_to('x', [('e0', 'c0', 'a', 1), (None, 'x-1', 'a', 1), ('e9', 'c9', 'a', 1), ('e1', 'c1', 'b', 1)])
    with pytest.raises(DataError, match='3 of 4 sentences') as e: h.paired(odd, english)
    assert all(i in str(e.value) for i in ('x-1', 'x-2', 'x-3')) and 'names no sentence' in str(e.value) and 'another gold answer' in str(e.value)
    g, = h.gaps([('X', 'English', odd, english)])
    assert g.left_out == ('x-1', 'x-2', 'x-3') and g.paired.pairs == 1
    row, = h.gap_rows([g])
    assert row['Left out'] == 3 and row['Verdict'] == 'not separated' and row['Resolvable (points)'] == 'never'


def test_gaps_are_holm_corrected_together():
    english = answers_to('en', [(f'e{n}', f'c{n}', 'a', 1) for n in range(20)])
    far, near = (answers_to(k, [(f'e{n}', f'c{n}', 'a', n >= m) for n in range(20)]) for k, m in (('far', 12), ('near', 2)))
    found = h.gaps([('far', 'English', far, english), ('near', 'English', near, english)])
    assert [g.verdict for g in found] == ['behind', 'not separated'] and found[0].p_holm == pytest.approx(2*mcnemar_exact(0, 12)) and found[1].p_holm == mcnemar_exact(0, 2)
    assert h.gaps([]) == []


# Text in, numbers out

@fast
@given(st.text(), st.sampled_from(['', 'en', 'zh', 'tr']))
def test_surface_is_numbers_whatever_the_text(text, language):
    s = h.surface(text, language)
    assert tuple(s) == h.FEATURES and all(isinstance(v, (int, float)) for v in s.values())
    assert all(0 <= s[k] <= 1 for k in ('punctuation', 'digits', 'ends with a mark', 'starts with a capital')) and (math.isnan(s['typos']) or s['typos'] <= s['unknown words'])


def test_a_typo_is_one_slip_from_a_known_word():
    pytest.importorskip('spellchecker')
    s = h.surface('please recieve the paymant from Zyxwvq', 'en')
    assert s['typos'] == pytest.approx(2/6) and s['unknown words'] == pytest.approx(3/6)


@few
@given(st.lists(st.text('ab ', min_size=1), min_size=1, max_size=6), st.text('ab', max_size=4))
def test_the_character_model_is_a_distribution(texts, context):
    m = h.CharacterModel(texts, order=3, characters=4)
    assert sum(m.probability('\n\n' + context, c) for c in 'ab \n') == pytest.approx(1)


@few
@given(st.text('abcdef', max_size=60))
def test_entropy(units):
    n = Counter(units)
    assert h.entropy(units) == pytest.approx(sum(-k/len(units)*math.log2(k/len(units)) for k in n.values()))


def test_formulaic_texts_are_cheaper_and_poorer():
    rng = random.Random(0)
    same = [f'please send the invoice number {n} to me today' for n in range(120)]
    varied = [''.join(rng.choice('abcdefghijklmnop ') for _ in range(45)) for _ in range(120)]
    assert h.predictability(same, 2) < h.predictability(varied, 2) and h.type_token_ratio(same, draws=2) < h.type_token_ratio(varied, draws=2, units=200)
    assert math.isnan(h.predictability(same[:3])) and math.isnan(h.type_token_ratio(same[:3]))


def test_telling_apart():
    rng = random.Random(1)
    plain, loud = [f'{rng.choice("abc")} thing {n}' for n in range(40)], [f'{rng.choice("abc")} THING {n}!' for n in range(60)]
    for view in h.VIEWS: assert h.tell_apart(plain, loud, 'tr', view) == (80, 80)
    right, n = h.tell_apart(plain, [p + ' ' for p in plain], 'tr', h.VIEWS[1])
    assert n == 80 and right < 60


# Freezing: on small files of our own

@pytest.fixture
def small(tmp_path, monkeypatch):
    "Two languages of four sentences, and one of Banking77's kind."
    folder_of(tmp_path/'sets' if (tmp_path/'sets').mkdir() is None else None, en_test=ENGLISH, de_test=[sentence(t, i, text_en=e) for t, i, e in (('weck mich um sechs bitte', 'alarm/set_alarm', 'wake me at six'), ('regnet es spaeter', 'weather/find', 'rain later'), ('weck mich um sechs', 'alarm/set_alarm', 'wake me at six'), ('wie lange noch', 'alarm/time_left_on_alarm', 'how long still'))],
              en_valid=[sentence(f'{t} {n}', i) for n in range(3) for t, i in (('wake me at', 'alarm/set_alarm'), ('rain at', 'weather/find'))], gsw_test=[sentence('weck mi am sechsi', 'alarm/set_alarm', text_en='wake me at six')])
    monkeypatch.setattr(h, 'SETS', ('xsid-en', 'xsid-de', 'xsid-gsw'))
    return tmp_path/'sets', tmp_path/'out'


def index(small):
    folder, out = small
    h.write_index({n: h.read_set(n, folder) for n in h.SETS}, out)
    return folder, out


def test_the_index_holds_everything_but_the_text(small):
    folder, out = index(small)
    sets, x = h.read_index(out)
    for n, d in sets.items():
        real = h.read_set(n, folder).data
        assert [(i.id, i.gold, i.meta, i.question) for i in d] == [(i.id, i.gold, i.meta, i.question) for i in real] and d.sha256 == real.sha256 and set(d.states) == {''}
        assert x[n].shape == (len(d), len(h.FEATURES)) and x[n][0][0] == len(real.states[0])
    raw = gzip.decompress(h.index_path(out).read_bytes()).decode() + (out/'human'/'reports.json').read_text()
    for n in h.SETS:
        for t in h.read_set(n, folder).data.states: assert t not in raw


def test_other_descriptions_make_the_frozen_answers_stale(small, monkeypatch):
    folder, out = index(small)
    q = im.intents('xsid')
    monkeypatch.setattr(im, 'intents', lambda s: Question(q.name, q.type, q.instructions, (('AddToPlaylist', 'something else'), *q.criteria[1:])))
    with pytest.raises(DataError, match='not those that systems were asked with'): h.read_index(out)
    with pytest.raises(DataError, match='polyroute human index'): h.read_index(out/'nowhere')


def test_freezing_is_compact_kept_and_resumed(small):
    folder, out = index(small)
    said = []
    toy = Toy('toy')
    h.freeze(toy, folder=folder, root=out, said=lambda *w: said.append(w))
    assert {d for *_, d in said} == {'computed'} and sum(c == 'canonical' for _, c, _ in said) == 3
    path = predictions_path('toy', 'xsid-de', suite='human', root=out)
    assert not path.exists() and find_predictions(path).suffix == '.gz'
    sets, _ = h.read_index(out)
    p = frozen('toy', 'xsid-de', out, sets['xsid-de'], suite='human')
    assert p.probs == pytest.approx(even(h.read_set('xsid-de', folder).data.states, p.data.question), abs=1e-4)
    before, calls = find_predictions(path).read_bytes(), len(toy.calls)
    said.clear(); h.freeze(toy, folder=folder, root=out, said=lambda *w: said.append(w))
    assert {d for *_, d in said} == {'kept'} and len(toy.calls) == calls and find_predictions(path).read_bytes() == before
    assert 'weck' not in gzip.decompress(before).decode()


def test_freezing_keeps_close_decisions(small):
    folder, out = index(small)
    close = lambda t, q: np.tile([.49996, .50004] + [0.]*(len(q.options) - 2), (len(t), 1))
    h.freeze(Toy('toy', predict=close), ['xsid-en'], False, folder, out)
    p = frozen('toy', 'xsid-en', out, h.read_index(out)[0]['xsid-en'], suite='human')
    assert (p.probs[:, :2] == (.5, .5001)).all() and (p.probs.argmax(axis=1) == 1).all()


def test_a_run_that_is_killed_between_sets_goes_on(small):
    folder, out = index(small)
    def dies(texts, question):
        if any('weck' in t for t in texts): raise KeyboardInterrupt
        return even(texts, question)
    with pytest.raises(KeyboardInterrupt): h.freeze(Toy('toy', predict=dies), folder=folder, root=out, with_conditions=False)
    said = []
    h.freeze(Toy('toy'), folder=folder, root=out, with_conditions=False, said=lambda *w: said.append((w[0], w[2])))
    assert said == [('xsid-en', 'kept'), ('xsid-de', 'computed'), ('xsid-gsw', 'computed')]


def test_stress_conditions_are_read_in_the_real_order(small):
    folder, out = index(small)
    h.freeze(Toy('toy', predict=lambda t, q: np.eye(len(q.options))[[0]*len(t)]), ['xsid-en'], folder=folder, root=out)      # always the first option shown
    a = h.Answers(out)
    s, = h.stabilities(a, split=None)
    assert s.changed == 1 and s.flipped == (4, 4) and set(s.effects) == set(h.NAMED) and s.follows[1] == 4
    assert a.get('toy', 'xsid-en', 'order-4').probs.argmax(1).tolist() == [4]*4


def test_a_missing_file_stops_before_anything_is_run(small):
    folder, out = small
    (folder/'xsid'/'gsw.test.conll').unlink()
    with pytest.raises(DataError, match='gsw.test.conll'): h.read_set('xsid-gsw', folder)
    with pytest.raises(DataError, match='there are xsid-en'): h.read_set('klingon', folder)


def test_a_system_that_cannot_answer_is_not_applicable(small):
    folder, out = index(small)
    def no(texts, question): raise UnsupportedQuestion('fitted to something else')
    h.freeze(Toy('toy'), ['xsid-en', 'xsid-de'], False, folder, out)
    h.freeze(Toy('no', predict=no), ['xsid-en'], False, folder, out)
    h.freeze(Toy('no'), ['xsid-de'], False, folder, out)
    rows = {r['Set']: r for r in h.accuracy_rows(h.Answers(out))}
    assert rows['English']['NO'] == 'n/a' and rows['Swiss German']['NO'] == 'not run' and '[' in rows['English']['TOY'] and rows['English']['Sources'] == 3


def test_answers_of_an_older_version_count_as_not_run(small):
    folder, out = index(small)
    h.freeze(Toy('toy'), ['xsid-en', 'xsid-de'], False, folder, out)
    h.freeze(Toy('toy', version='2'), ['xsid-en'], False, folder, out)
    a = h.Answers(out)
    assert a.on('xsid-en') == ['toy'] and a.get('toy', 'xsid-de') is None and h.accuracy_rows(a)[1]['TOY'] == 'not run'


def test_few_systems_and_few_sets_leave_the_page_whole(small):
    folder, out = index(small)
    a = h.Answers(out)
    assert a.on() == [] and h.conclusions(a) == [] and 'not resolved' in ' '.join(h.findings(a)) and h.card_findings(out) == [] and h.guide_findings(out/'x') == []
    h.freeze(Toy('toy'), folder=folder, root=out)
    a = h.Answers(out)
    assert [g.name for g in h.english_gaps(a, 'toy')] == ['German', 'Swiss German'] and [g.reference for g in h.dialect_gaps(a, 'toy')] == ['German']
    assert all(isinstance(s, str) and s for s in h.findings(a))
    assert len(h.calibration_shifts(a, 'toy')) == 3


# Systems

def test_english_only_gives_unseen_intents_no_chance(small):
    folder, _ = small
    for make in h.ENGLISH_ONLY.values():
        s = make(folder)
        if s.card.slug.startswith('e5'): s.features = lambda texts: np.array([[3*('rain' in t), 1] for t in texts], dtype=float)      # no embedder in tests
        p, q = s.predict(['rain tomorrow', 'wake me'], im.intents('xsid')), im.intents('xsid')
        assert p.shape == (2, 16) and p.sum(axis=1) == pytest.approx(1) and set(np.flatnonzero(p.sum(axis=0))) == {q.options.index('alarm/set_alarm'), q.options.index('weather/find')}
        assert q.options[p[0].argmax()] == 'weather/find'
        with pytest.raises(UnsupportedQuestion): s.predict(['x'], AB)


def test_a_shortlist_keeps_the_nearest_options():
    pytest.importorskip('laya')
    options = [f'o{n}' for n in range(30)]
    q = Question('intent', 'choice', '', tuple((o, '') for o in options))
    near = lambda texts: np.array([[1., abs(int(''.join(filter(str.isdigit, t))) - 12)] for t in texts])     # the text is about number 12
    asked = []
    def predict(texts, question): asked.append(question.options); return np.full((len(texts), len(question.options)), 1/len(question.options))
    s = h.Shortlisted(Toy('toy', predict=predict), keep=5, embed_texts=near)
    p = s.predict(['about 12'], q)
    assert p.shape == (1, 30) and p.sum() == pytest.approx(1) and set(np.flatnonzero(p[0])) == {10, 11, 12, 13, 14} and asked[0][0] == 'o12'
    assert (s.predict(['x'], AB) == .5).all() and asked[-1] == AB.options


# Agreement of the two kinds of text

def two_sides(orders, machine_orders):
    "Recipes whose accuracies fall in some order on human and on machine-written items."
    side = lambda name, shares: [answers_to(name, [(f'e{n}', f'c{n}', 'a', n < 100*s) for n in range(100)], f's{k}') for k, s in enumerate(shares)]
    human, machine = side('human', orders), side('ml_test', machine_orders)
    return h.Both([f's{k}' for k in range(len(orders))], [f's{k}' for k in range(len(orders))], [[p] for p in human], {'ml_test': machine})


def test_agreement_sees_order_and_its_opposite():
    shares = [.2, .4, .6, .8, .97]
    same, turned = h.agreement(two_sides(shares, shares), 'ml_test'), h.agreement(two_sides(shares, shares[::-1]), 'ml_test')
    assert (same.rho.value, same.verdict, same.opposite) == (1, 'agree', 0) and same.same == 10
    assert (turned.rho.value, turned.verdict, turned.same) == (-1, 'disagree', 0) and turned.opposite == 10
    close = h.agreement(two_sides(shares, [.5, .51, .5, .51, .5]), 'ml_test')
    assert close.verdict == 'not resolved' and close.open == 10
    few_ = h.agreement(two_sides(shares[:4], shares[:4]), 'ml_test')
    assert few_.rho.value == 1 and few_.verdict == 'not resolved'          # four in the same order: one chance in twelve, in either direction
    assert h.agreement(two_sides([.2, .5], [.2, .5]), 'ml_test').verdict == 'not resolved'
    assert len(h.agreement_rows([same, turned])) == 2


@pytest.mark.parametrize('verdict, says', [('agree', 'agree on the order'), ('disagree', 'disagree on the order'), ('not resolved', 'leave open the order'), ('agree for 1 of 2 systems', 'agree in part on the order')])
def test_the_sentence_says_what_the_verdicts_say(verdict, says):
    text = h.agreement_sentence([h.Conclusion('The order', '', '', verdict)])
    assert says in text and sum(w in text for w in ('agree on', 'disagree on', 'leave open', 'agree in part')) == (2 if verdict == 'disagree' else 1)


# The frozen results of the project

@pytest.mark.skipif(not h.index_path().is_file(), reason='nothing is frozen')
def test_frozen_answers_fit_the_index():
    a = h.Answers()
    assert set(a.sets) == set(h.SETS) and sum(len(d) for d in a.sets.values()) == 17330
    for s in a.on('xsid-en'):
        p = a.get(s, 'xsid-en')
        assert p.probs.shape == (500, 16) and p.header.suite == 'human'


@external
@pytest.mark.skipif(not h.index_path().is_file(), reason='nothing is frozen')
def test_the_index_is_that_of_the_published_files():
    sets, x = h.read_index()
    for name in ('xsid-en', 'xsid-de-ba', 'banking77'):
        real = h.read_set(name).data
        assert sets[name].sha256 == real.sha256 and list(sets[name].ids) == list(real.ids) and list(sets[name].gold) == list(real.gold)
        assert x[name][7][0] == len(real.states[7].strip())


def committed():
    "Files of the checkout that are committed or would be."
    root = Path(h.__file__).resolve().parents[1]
    if not (root/'.git').exists(): pytest.skip('this is no checkout')
    names = subprocess.run(['git', 'ls-files', '-co', '--exclude-standard', '-z'], cwd=root, capture_output=True, check=True).stdout.decode().split('\0')
    return [root/n for n in names if n and (root/n).is_file()]


def sample(n=30, shortest=30):
    "Sentences of every set, long enough not to be anybody else's."
    rng, out = random.Random(0), []
    for name in h.SETS:
        texts = sorted({t for t in h.read_set(name).data.states if len(t) >= (shortest if name not in ('xsid-zh', 'xsid-ja') else 16)})
        out += rng.sample(texts, min(n, len(texts)))
    return out + rng.sample(sorted({t for t in im.banking77('train').data.states if len(t) >= shortest}), 60)


def found_in(paths, texts, folder):
    "The files that hold any of the texts, plain or as JSON escapes them; compressed ones are looked into."
    patterns = folder/'patterns.txt'
    patterns.write_text('\n'.join(sorted({v for t in texts for v in (t, json.dumps(t)[1:-1], json.dumps(t, ensure_ascii=False)[1:-1])})) + '\n', encoding='utf-8')
    plain, out = [p for p in paths if p.suffix != '.gz'], []
    for i in range(0, len(plain), 500): out += subprocess.run(['grep', '-laF', '-f', str(patterns), '--', *map(str, plain[i:i + 500])], capture_output=True, text=True, env={'LC_ALL': 'C', 'PATH': '/usr/bin:/bin'}).stdout.split('\n')[:-1]
    packed = folder/'unpacked'
    for p in (p for p in paths if p.suffix == '.gz'):
        packed.write_bytes(gzip.decompress(p.read_bytes()))
        if subprocess.run(['grep', '-qaF', '-f', str(patterns), str(packed)], env={'LC_ALL': 'C', 'PATH': '/usr/bin:/bin'}).returncode == 0: out.append(str(p))
    return out


@external
def test_no_sentence_of_the_public_sets_is_committed(tmp_path):
    texts, paths = sample(), committed()
    assert len(texts) > 500 and len(paths) > 100
    assert found_in(paths, texts, tmp_path) == []
    for name, data in (('a.jsonl', json.dumps(dict(x=texts[3])).encode()), ('b.jsonl.gz', gzip.compress(f'and {texts[-1]} too'.encode())), ('c.txt', b'nothing')): (tmp_path/name).write_bytes(data)
    assert found_in([tmp_path/n for n in ('a.jsonl', 'b.jsonl.gz', 'c.txt')], texts, tmp_path) == [str(tmp_path/'a.jsonl'), str(tmp_path/'b.jsonl.gz')]        # it can find one


# CLI

def test_cli_human(small):
    from click.testing import CliRunner
    from polyroute.cli import main
    folder, out = index(small)
    run = lambda *args: CliRunner().invoke(main, ['human', *map(str, args)])
    h.freeze(Toy('toy'), folder=folder, root=out)
    sets = run('sets', '--folder', folder)
    assert sets.exit_code == 0 and 'Swiss German' in sets.output
    board = run('board', '--out', out, '--json')
    assert board.exit_code == 0 and [r['Set'] for r in json.loads(board.stdout)] == ['English', 'German', 'Swiss German']
    gaps = run('gaps', 'toy', '--out', out)
    assert gaps.exit_code == 0 and 'Swiss German' in gaps.output
    assert run('findings', '--out', out).exit_code == 0
    for wrong, says in ((('gaps', 'nobody', '--out', out), 'nobody has not answered'), (('board', '--set', 'klingon', '--out', out), 'there is no set'), (('board', '--out', out/'none'), 'polyroute human index')):
        got = run(*wrong)
        assert got.exit_code == 1 and says in got.output
    (folder/'xsid'/'de.test.conll').unlink()
    gone = run('sets', '--folder', folder)
    assert gone.exit_code == 1 and 'de.test.conll' in gone.output and 'github.com/mainlp/xsid' in gone.output
