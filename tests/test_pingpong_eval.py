"The suite's systems, policies, prompts, measures and tables, against slow recounts and the reference implementations, with language models replayed."
import itertools, json, math, random, re
from collections import Counter
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from conftest import Toy
from polyroute import pingpong_eval as pe
from polyroute.items import DataError, Question, reference
from polyroute.pingpong import COMBINATIONS, TOPIC, load, load_dialogues
from polyroute.pingpong_collection import KINDS, LETTERS, QA, UNANSWERABLE, Dialogue, Turn, dialogue_text
from polyroute.predictions import predictions_path, read_header
from polyroute.responses import Failure, Prompt, read_responses, respond
from polyroute.systems import Card, System, UnsupportedQuestion, cards, read_card

fast = settings(max_examples=40, deadline=None)
WORD = st.text('abcدرɓɗ', min_size=1, max_size=3)
TEXT = st.lists(WORD, min_size=1, max_size=9).map(' '.join)

@st.composite
def dialogues(draw):
    n = draw(st.integers(1, 12))
    return Dialogue('d-01', tuple(Turn(i, draw(st.sampled_from('ABC')), draw(st.one_of(TEXT, st.just('😂'), st.just('a\nb'))), draw(st.one_of(st.none(), st.integers(1, i - 1))) if i > 1 else None) for i in range(1, n + 1)))

class Replay:
    "A language model that says what it said before."
    def __init__(self, say, slug='replayed'): self.card, self.say, self.asked = Card(slug, slug.upper(), 'ref', 'Replayed.', 'none', recipe=dict(family='chat')), say, []
    def generate(self, prompts):
        self.asked += prompts
        return [self.say(p) for p in prompts]

# ---- systems

@pytest.mark.parametrize('slug', ['always-e', 'longest-option', 'ngram-overlap', 'majority-dialogues'])
def test_systems_are_systems(slug):
    s, data = pe.own(slug), load('qa.ha-en')
    assert isinstance(s, System) and s.card.slug == slug
    for i in data[:3] if isinstance(data, list) else [data[0], data[7]]:
        p = s.predict([i.state], i.question)
        assert p.shape == (1, 5) and p.sum() == pytest.approx(1) and (p >= 0).all()

def test_no_system_reads_the_answer():
    i = load('qa.id-en')[0]
    assert 'gold' not in Question.__dataclass_fields__ and len({pe.own('longest-option').predict([s], i.question).argmax() for s in ('', i.state)}) == 1

def test_always_e_is_all_or_nothing(tmp_path):
    pe.freeze(pe.own('always-e'), ('qa',), root=tmp_path)
    a, = pe.all_answers('qa', root=tmp_path)
    assert not a.hit[a.answerable].any() and a.hit[~a.answerable].all() and len(a.hit) == 500
    assert read_header(predictions_path('always-e', 'qa.id-en', suite='pingpong', root=tmp_path)).labels_only

def test_halves_hold_whole_places_and_every_topic():
    rows = [i for c in COMBINATIONS for i in load(f'topic.{c}')]
    assert all(n == 5 for n in Counter((pe.half(i.meta['cluster']), i.gold) for i in rows).values())
    assert len({(i.meta['cluster'].rpartition('-')[2], pe.half(i.meta['cluster'])) for i in rows}) == 10

def test_regularisation_is_chosen_on_folds_that_hold_every_topic(monkeypatch):
    seen = []
    monkeypatch.setattr(pe, 'embed', lambda texts: np.zeros((len(texts), 2)))
    monkeypatch.setattr(pe, 'search_logreg', lambda x, labels, folds, groups: seen.extend((set(np.array(labels)[train]), set(np.array(labels)[test])) for train, test in folds.split(x, labels, groups)))
    rows = [i for c in COMBINATIONS for i in load(f'topic.{c}') if pe.half(i.meta['cluster']) == 0]
    pe._fit_embeddings([i.state for i in rows], [i.gold for i in rows], [i.meta['cluster'] for i in rows])
    assert len(seen) == 5 and all(a == b == set(TOPIC.options) for a, b in seen)

def test_cross_fitting_sees_the_other_half_alone():
    seen = []
    def fit(states, labels, clusters):
        seen.append({pe.half(c) for c in clusters}); known = set(states)
        return lambda texts: [{'education': 1.} if t in known else {'daily_life': 1.} for t in texts]
    s = pe.CrossFitted(Card('x', 'X', 'ref', 'x', 'x'), ('topic',), fit)
    for c in COMBINATIONS: assert {TOPIC.options[k] for k in s.predict(load(f'topic.{c}').states, TOPIC).argmax(1)} == {'daily_life'}
    assert sorted(map(tuple, seen)) == [(0,), (1,)]
    with pytest.raises(UnsupportedQuestion): s.predict(['x'], load('qa.id-en')[0].question)
    with pytest.raises(DataError): s.predict(['1 A: not a dialogue of the suite'], TOPIC)

@fast
@given(dialogues(), st.integers(1, 7), st.integers(1, 3))
def test_stretches_cover_every_turn(d, size, step):
    got = pe.stretches(dialogue_text(d), size, min(step, size))
    heads = lambda s: [int(m) for m in re.findall(r'^(\d+) ', s, re.M)]
    assert {n for s in got for n in heads(s)} == {t.n for t in d.turns} and all(len(heads(s)) == min(size, len(d.turns)) for s in got)

@fast
@given(TEXT, st.integers(1, 5))
def test_grams_by_hand(text, n):
    want = set()
    for w in re.findall(r'\w+', text):
        padded = f' {w} '
        want |= {padded[i:i + n] for i in range(len(padded)) if len(padded[i:i + n]) == n} or {padded}
    assert pe.grams(text, n) == want

def test_overlap_is_highest_for_what_was_said():
    chat = '\n'.join(f'{n} A: {w} and nothing more was said' for n, w in enumerate(['horse', 'boat broke yesterday', 'tree', 'river', 'stone', 'wheel', 'pump'], 1))
    s = pe.overlap(chat, 'What broke yesterday?', ['boat', 'zebra', ''])
    assert s.argmax() == 0 and s[2] <= s[0]

# ---- policies

@fast
@given(dialogues(), st.sampled_from(sorted(pe.POLICIES)), st.integers(1, 120), TEXT)
def test_policies_show_whole_turns_within_the_budget(d, policy, budget, asked):
    q, cost = Question('qa', 'choice', asked, (('A', 'a'), ('B', 'b'))), pe.costs(d)
    shown = pe.POLICIES[policy](d, q, cost, budget)
    assert len(set(shown)) == len(shown) and set(shown) <= set(range(len(cost))) and sum(cost[i] for i in shown) <= budget
    if budget >= sum(cost): assert len(shown) == len(cost)
    if policy == 'head': assert sorted(shown) == list(range(len(shown)))
    if policy == 'tail': assert sorted(shown) == list(range(len(cost) - len(shown), len(cost)))
    text = pe.cut(d, policy, q, budget)
    assert text and set(text.split('\n')) <= set(dialogue_text(d).split('\n'))
    if budget >= sum(cost): assert text == dialogue_text(d)

def test_related_prefers_what_the_question_asks():
    d = Dialogue('d-01', tuple(Turn(i, 'A', w) for i, w in enumerate(['horse horse', 'the boat broke', 'tree', 'river'], 1)))
    q = Question('qa', 'choice', 'Who broke the boat?', (('A', 'x'), ('B', 'y')))
    assert pe.cut(d, 'related', q, pe.costs(d)[1]) == '2 A: the boat broke'
    with pytest.raises(DataError): pe.cut(d, 'middle', q)

def test_policies_are_tested_against_the_beginning(tmp_path):
    gold = {i.state: i.gold for i in load('topic.id-en')}
    whole = {d.id: dialogue_text(d) for d in load_dialogues('id-en')}
    ends = lambda states, q: np.array([np.eye(5)[q.options.index(next(gold[w] for w in whole.values() if w.endswith(s)))] if any(w.endswith(s) for w in whole.values()) else [1, 0, 0, 0, 0] for s in states])
    for policy in ('head', 'tail'): pe.freeze(Toy('reads-the-end', predict=ends), ('topic',), policy, ('id-en',), root=tmp_path)
    test, = pe.policy_tests(root=tmp_path)
    assert (test.policy, test.task) == ('tail', 'topic') and test.difference.value == pytest.approx(.8) and test.p == 2/2**8 and '1 differ' in pe.policy_text(tmp_path)

def test_intervals_where_all_are_alike(tmp_path):
    pe.freeze(pe.own('always-e'), ('qa',), combinations=['ha-en'], root=tmp_path)
    a, = pe.all_answers('qa', root=tmp_path)
    assert pe.share(a.hit, a, a.answerable) == (0, *pe.metrics.wilson(0, 10)) and pe.macro(a.hit, a, ~a.answerable).value == 1

def test_cut_freezes_under_a_condition_of_its_own(tmp_path):
    s = Toy('cutter')
    for policy in (None, 'head', 'tail'): pe.freeze(s, ('topic',), policy, ('id-en',), root=tmp_path)
    heads = {c: read_header(predictions_path('cutter', 'topic.id-en', c, suite='pingpong', root=tmp_path)) for c in ('canonical', 'head-200', 'tail-200')}
    assert len({h.version for h in heads.values()}) == 3 and len({h.data_sha256 for h in heads.values()}) == 1
    a, b = (pe.read_answers(s.card, 'topic', c, tmp_path) for c in ('canonical', 'head-200'))
    assert len(a.hit) == len(b.hit) == 10 and pe.policy_rows('topic', root=tmp_path)[0]['spread'] == 'not run'
    assert pe.freeze(s, ('topic',), 'head', ('id-en',), root=tmp_path) == {'topic.id-en': 'kept'}

# ---- reading

@fast
@given(st.integers(0, 4), st.sampled_from(['{"answer": "%s"}', '```json\n{"answer": "%s"}\n```', '<think>A or E</think>{"reasoning": "so {x} \\"y\\"", "answer": "%s"}', 'Sure:\n{"answer": "option %s"}', '%s.', '(%s)', '{"reasoning": "broken "quote", "answer": "%s"}']))
def test_answers_in_any_wrapping(i, form):
    q = Question('qa', 'choice', '?', tuple(zip(LETTERS, ('one', 'two', 'three', 'four', 'none of these'))))
    assert pe.read_answer(form % LETTERS[i], q) == i

@pytest.mark.parametrize('text', ['', 'A and B', '{"answer": "A"}\n{"answer": "C"}', '{"answer": 3}', '{"answer": "Q"}', '{' * 400, '{"answer": ["A"]}', 'I think that it may be A or not'])
def test_what_cannot_be_read_is_not_guessed(text):
    assert pe.read_answer(text, Question('qa', 'choice', '?', tuple(zip(LETTERS, 'vwxyz')))) is None

def test_answer_by_text_in_arabic_script():
    q = Question('qa', 'choice', '?', tuple(zip(LETTERS, ('البطارية', 'الشاشة', 'x', 'y', 'لا توجد إجابة صحيحة'))))
    assert pe.read_answer('{"answer": "الشاشة"}', q) == 1 and pe.read_answer('{"answer": "E: لا توجد إجابة صحيحة"}', q) == 4

# ---- prompts

@pytest.mark.parametrize('task,shots,reasoning', [(t, k, r) for t, ks in pe.SHOTS.items() for k in ks for r in (False, True)])
def test_prompts_say_no_answer_of_their_own(task, shots, reasoning):
    ds = {d.id: d for d in load_dialogues('su-id-en')}
    ps = pe.prompts(task, 'su-id-en', shots, reasoning)
    want = [i.id for i in load(f'{task}.su-id-en')] if task != 'summary' else [f'{d}-summary' for d in ds]
    assert [p.id for p in ps] == want and len({p.messages[0]['content'] for p in ps}) == len(ps)
    for p in ps[:12]:
        text, d = p.messages[0]['content'], ds[p.id.rpartition('-')[0]]
        assert ('"reasoning"' in text) == reasoning and text.count('<chat>') == (1 if task == 'summary' else 1 + shots) and text.rstrip().endswith('</chat>') == (task != 'qa')
        assert not any(s in text for s in d.summaries) and text.count('{"answer": "') == (shots if task != 'summary' else 0) + (task != 'summary' and not reasoning)
        assert text.count(dialogue_text(d)) == 1
        if task == 'summary': assert sum(json.dumps(x.summaries[0], ensure_ascii=False) in text for x in ds.values()) == shots

def test_examples_are_other_dialogues_of_other_places():
    ds = load_dialogues('id-en')
    for d in ds: assert d not in pe.examples(d, ds, 3) and len({x.id for x in pe.examples(d, ds, 3)}) == 3
    with pytest.raises(DataError): pe.examples(ds[0], ds[:2], 2)

def test_the_example_does_not_tell_the_kind():
    d, *rest = load_dialogues('id-en')
    ps, kinds = pe.qa_prompts(d, rest[:1]), [q.kind for q in d.qa]
    answers = [re.search(r'^\{"answer": "(\w)"\}$', p.messages[0]['content'], re.M)[1] for p in ps]
    assert len(set(answers)) > 1 and [a == 'E' for a in answers] != [k != 'answerable' for k in kinds]

def test_decoding_is_table_7():
    for r in reference('pingpong_paper')['table7_decoding']:
        task = {v: k for k, v in pe._TABLE7.items()}[r['task']]
        got = pe.decoding(task, r['model'])
        assert (got['temperature'], got['top_p'], got['max_tokens']) == (r['temperature'], r['top_p'], r['max_tokens'])
        assert got.get('top_k') in ((int(r['top_k']),) if r['top_k'] >= 1 else (None,)) and isinstance(got.get('top_k', 1), int) and 'min_k' not in got
        assert ('chat_template_kwargs' in got) == (r['model'].endswith('Think'))
    with pytest.raises(DataError): pe.decoding('essay')

# ---- replayed language models

def test_replayed_model_on_questions(tmp_path):
    gold = {i.id: i.gold for c in COMBINATIONS for i in load(f'qa.{c}')}
    right = lambda p: Failure('declined') if p.id.endswith('q03') else json.dumps({'answer': gold[p.id]}) if not p.id.endswith('q01') else 'well, hard to say'
    m = Replay(right)
    assert set(pe.write(m, 'qa', ['id-en'], 0, root=tmp_path).values()) == {'computed'} and set(pe.write(m, 'qa', ['id-en'], 0, root=tmp_path).values()) == {'kept'}
    pe.write(Replay(lambda p: 'E'), 'qa', ['id-en'], 1, root=tmp_path)
    a, = pe.all_answers('qa', root=tmp_path)
    lost = np.array([i.id.endswith(('q01', 'q03')) for i in load('qa.id-en')])
    assert list(a.chosen == -1) == list(lost) and list(a.hit) == list(~lost)
    row, = pe.qa_rows(tmp_path)
    assert row['ID-EN'].startswith('60.0') and row['HA-EN'] == 'not run'
    assert next(r for r in pe.e_rows(tmp_path))['unread'] == 20
    change = pe.change_rows('shots', tmp_path)[0]
    assert change['ID-EN'] == '60.0 → 0.0' and change['mean difference'].startswith('-60.0') and pe.change_rows('reasoning', tmp_path)[0]['ID-EN'] == '60.0 → not run'

def test_replayed_model_on_summaries(tmp_path):
    refs = {d.id: d.summaries for d in load_dialogues('ar-dz-fr')}
    m = Replay(lambda p: json.dumps({'reasoning': 'r', 'summary': refs[p.id.removesuffix('-summary')][1]}, ensure_ascii=False) if not p.id.startswith('ar-dz-fr-02') else Failure('declined'))
    pe.write(m, 'summary', ['ar-dz-fr'], 3, True, root=tmp_path)
    assert all('dialogue' in p.fields for p in m.asked) and pe.language_models('summary', tmp_path) == ['replayed']
    pe.score_summaries(tmp_path, with_bertscore=False)
    s = pe.read_scores('replayed', 'ar-dz-fr', 'shots-3-reasoning', tmp_path)
    assert s.missing == 1 and s.scores['rougeL'][1] == 0 and np.delete(s.scores['rougeL'], 1) == pytest.approx(np.ones(9)) and 'bertscore_f' not in s.scores
    assert any('shots-3-reasoning' in r['system'] and r['bertscore_f'] == 'not run' for r in pe.summary_rows('ar-dz-fr', tmp_path))
    assert not any(r['system'] == 'Language models' for r in pe.rouge_l_rows(tmp_path))
    assert pe.read_scores('replayed', 'id-en', 'shots-3-reasoning', tmp_path) is None
    before = (tmp_path/pe.SCORES).read_bytes()
    pe.score_summaries(tmp_path, with_bertscore=False)
    assert (tmp_path/pe.SCORES).read_bytes() == before
    respond(Replay(lambda p: 'another text'), pe.prompts('summary', 'ar-dz-fr', 3, True), 'summary.ar-dz-fr', 'pingpong', 'shots-3-reasoning', pe.data_sha256('summary', 'ar-dz-fr'), tmp_path, fresh=True)
    assert pe.read_scores('replayed', 'ar-dz-fr', 'shots-3-reasoning', tmp_path) is None       # scores of other texts are not read

def test_without_language_models_the_rows_read_not_run(tmp_path):
    (tmp_path/'systems').mkdir()
    assert pe.rouge_l_rows(tmp_path)[-1]['mean'] == pe.change_rows('shots', tmp_path)[0]['mean difference'] == 'not run' and pe.qa_rows(tmp_path) == []
    assert pe.summary_rows('id-en', tmp_path)[-1]['rouge1'] == 'not run' and 'No decision model' in pe.closing_text(tmp_path)

# ---- measures against their definitions and the libraries

def _ngrams(w, n): return Counter(tuple(w[i:i + n]) for i in range(len(w) - n + 1))

def _lcs(a, b): return max((len(s) for n in range(len(a) + 1) for s in itertools.combinations(a, n) if _is_sub(s, b)), default=0)

def _is_sub(s, b): it = iter(b); return all(x in it for x in s)

@settings(max_examples=25, deadline=None)
@given(TEXT, st.lists(TEXT, min_size=1, max_size=3))
def test_rouge_by_counting(text, refs):
    a, got = pe.words(text), pe.rouge(text, refs)
    f = lambda hit, x, y: 2*hit/(x + y) if x + y and hit else 0.
    for n in (1, 2, 3, 4): assert got[f'rouge{n}'] == pytest.approx(max(f((_ngrams(a, n) & _ngrams(b, n)).total(), max(len(a) - n + 1, 0), max(len(b) - n + 1, 0)) for b in map(pe.words, refs)))
    assert got['rougeL'] == pytest.approx(max(f(_lcs(a, b), len(a), len(b)) for b in map(pe.words, refs)))

def test_rouge_is_the_library_on_ascii_and_sees_other_scripts():
    from rouge_score import rouge_scorer
    a, b = 'The boat broke, and A paid 30 for it.', 'A paid 30; the old boat broke again.'
    lib = rouge_scorer.RougeScorer(['rouge1', 'rouge2', 'rouge3', 'rouge4', 'rougeL']).score(b, a)
    assert pe.rouge(a, [b]) == pytest.approx({k: v.fmeasure for k, v in lib.items()}) == pe.rouge(a, [b], usual=True)
    arabic = 'وجد هاتفًا مستعملًا'
    assert pe.rouge(arabic, [arabic], usual=True)['rouge1'] == 0 and pe.rouge(arabic, [arabic])['rouge1'] == 1
    assert pe.words('ƙarfe ɗaya') == ['ƙarfe', 'ɗaya'] and pe.words('हिन्दी में') == ['हिन्दी', 'में']

@settings(max_examples=25, deadline=None)
@given(st.lists(st.sampled_from('abcd'), min_size=1, max_size=6), st.lists(st.sampled_from('abcde'), min_size=1, max_size=6))
def test_meteor_by_its_formula(a, b):
    from nltk.translate.meteor_score import align_words
    matches = [(i, j) for i, j in align_words(a, b, wordnet=pe._NoSynonyms())[0]]
    m = len(matches)
    if not m: assert pe.meteor(' '.join(a), [' '.join(b)]) == 0; return
    assert m == (Counter(a) & Counter(b)).total()      # single letters have no stems: as many as the bags share
    ordered = sorted(matches)
    chunks = 1 + sum(not (x[0] + 1 == y[0] and x[1] + 1 == y[1]) for x, y in zip(ordered, ordered[1:]))
    p, r = m/len(a), m/len(b)
    assert pe.meteor(' '.join(a), [' '.join(b)]) == pytest.approx(p*r/(.9*p + .1*r)*(1 - .5*(chunks/m)**3))

def test_meteor_is_nltk_without_synonyms():
    from nltk.translate.meteor_score import meteor_score
    refs, text = ['A sold the old boat', 'the boats were sold'], 'A sold boats'
    assert pe.meteor(text, refs) == pytest.approx(max(meteor_score([r.lower().split()], text.lower().split(), wordnet=pe._NoSynonyms()) for r in refs)) and pe.meteor(text, refs) > 0
    assert pe.meteor('', refs) == 0

@settings(max_examples=25, deadline=None)
@given(TEXT, TEXT)
def test_chrf_by_counting(text, ref):
    def score(a, b, n): x, y = _ngrams(a, n), _ngrams(b, n); return (x & y).total(), x.total(), y.total()
    stats = [score(list(text.replace(' ', '')), list(ref.replace(' ', '')), n) for n in range(1, 7)] + [score(text.split(), ref.split(), n) for n in (1, 2)]
    there = [(m/x, m/y) for m, x, y in stats if x and y]
    p, r = (np.mean([t[i] for t in there]) for i in (0, 1))
    assert pe.chrf_pp(text, [ref]) == pytest.approx(100*5*p*r/(4*p + r) if p + r else 0, abs=1e-6)

def test_chrf_is_sacrebleu():
    from sacrebleu.metrics import CHRF
    assert pe.chrf_pp('A sold a boat', ['B bought it', 'A sold the boat']) == CHRF(word_order=2).sentence_score('A sold a boat', ['B bought it', 'A sold the boat']).score

VECTORS = st.integers(1, 5).flatmap(lambda n: st.lists(st.lists(st.floats(-1, 1), min_size=3, max_size=3).filter(lambda v: math.hypot(*v) > .1), min_size=n, max_size=n))

@fast
@given(VECTORS, st.lists(VECTORS, min_size=1, max_size=3))
def test_bertscore_by_loops(a, refs):
    unit = lambda rows: pe.TokenVectors(np.array([np.array(v)/math.hypot(*v) for v in rows]), np.ones(len(rows)))
    a, refs = unit(a), [unit(r) for r in refs]
    best = lambda x, y: np.mean([max(float(u @ v) for v in y.vectors) for u in x.vectors])
    ps, rs = [best(a, r) for r in refs], [best(r, a) for r in refs]
    got = pe.bertscore(a, refs)
    assert got['bertscore_p'] == pytest.approx(max(ps)) and got['bertscore_r'] == pytest.approx(max(rs))
    assert got['bertscore_f'] == pytest.approx(max(2*p*r/(p + r) if p + r else 0 for p, r in zip(ps, rs)))

def test_bertscore_leaves_out_what_the_tokenizer_adds():
    x = pe.TokenVectors(np.eye(3), np.array([0, 1, 0.]))
    assert pe.greedy_match(x, pe.TokenVectors(np.eye(3)[[1]], np.ones(1))) == (1, 1, 1)
    assert pe.greedy_match(x, pe.TokenVectors(np.eye(3)[[2]], np.ones(1)))[:2] == (0, 1)      # a mark may be matched, but is not counted
    assert pe.greedy_match(x, pe.TokenVectors(np.eye(3)[[0]], np.zeros(1))) == (0, 0, 0)

# ---- generators

@fast
@given(st.lists(TEXT, min_size=1, max_size=6), st.lists(TEXT, min_size=1, max_size=2))
def test_oracle_never_beats_the_best_subset_and_grows(texts, refs):
    f = lambda ix: max(pe._gram_f(pe._gram_counts(pe.words(' '.join(texts[i] for i in sorted(ix)))), pe._gram_counts(pe.words(r))) for r in refs)
    got = pe.oracle_order(texts, refs, 20)
    assert len(pe.words(' '.join(texts[i] for i in got))) <= 20 and all(f(got[:n]) < f(got[:n + 1]) for n in range(1, len(got)))
    fit = [ix for n in range(len(texts) + 1) for ix in itertools.combinations(range(len(texts)), n) if len(pe.words(' '.join(texts[i] for i in ix))) <= 20]
    assert f(got) <= max(map(f, fit)) + 1e-12 and f(got) >= max([f((i,)) for i in range(len(texts)) if (i,) in fit], default=0) - 1e-12

@fast
@given(st.lists(TEXT, min_size=1, max_size=6))
def test_text_rank_is_the_fixed_point(texts):
    r, bags = pe.text_rank(texts), [set(pe.words(t)) for t in texts]
    w = np.array([[len(a & b)/(math.log(len(a)) + math.log(len(b))) if i != j and min(len(a), len(b)) > 1 else 0. for j, b in enumerate(bags)] for i, a in enumerate(bags)])
    n, out = len(texts), w.sum(axis=1)
    step = np.where(out[:, None] > 0, w/np.where(out, out, 1)[:, None], 1/n)
    assert r.sum() == pytest.approx(1) and r == pytest.approx(.15/n + .85*step.T @ r, abs=1e-4)

def test_generators_write_for_every_dialogue(tmp_path):
    for slug, make in pe.GENERATORS.items():
        assert pe.write(make(), root=tmp_path, combinations=['ha-en']) == {'summary.ha-en': 'computed'}
        r = read_responses(slug, 'summary.ha-en', 'pingpong', root=tmp_path)
        assert len(r.texts) == 10 and not r.failures
        for d in load_dialogues('ha-en'):
            t = r.texts[f'{d.id}-summary']
            if slug == 'other-summary': assert t not in d.summaries
            else: assert {l for l in t.split('\n')} <= {l for x in d.turns for l in x.text.split('\n')}
    assert not pe.language_models('summary', tmp_path)

# ---- tables and tests

def test_kinds_and_places_by_counting(tmp_path):
    pe.freeze(Toy('counted'), ('qa',), root=tmp_path)
    a, = pe.all_answers('qa', root=tmp_path)
    rows = [i for c in COMBINATIONS for i in load(f'qa.{c}')]
    got, = pe.kind_rows(root=tmp_path)
    for k in UNANSWERABLE: assert got[pe.KIND_NAMES[k]].split()[0] == f"{100*np.mean([h for h, i in zip(a.hit, rows) if i.meta['kind'] == k]):.1f}"
    for p in pe.places(a):
        said = [LETTERS[c] == p.letter for c, i in zip(a.chosen, rows) if i.meta['answerable'] == 'yes']
        assert p.chosen == pytest.approx(np.mean(said)) and p.excess.value == pytest.approx(p.chosen - p.right)
    assert [p.right for p in pe.places(a)][-1] == 0
    assert pe.e_rows(tmp_path)[0]['E on answerable'].split()[0] == f'{100*np.mean(pe.chose_e(a)[a.answerable]):.1f}'

def test_a_system_of_one_combination_is_shown_as_that(tmp_path):
    pe.freeze(Toy('partial'), ('topic',), combinations=['ha-en'], root=tmp_path)
    row, = pe.topic_rows(tmp_path)
    assert row['ID-EN'] == 'not run' and row['HA-EN'] != 'not run' and row['mean'].split()[0] == row['HA-EN'].split()[0]

@given(st.lists(st.tuples(st.booleans(), st.booleans(), st.sampled_from('wxyz')), min_size=1, max_size=20))
@fast
def test_flip_test_by_enumeration(rows):
    a, b, c = (np.array(v) for v in zip(*rows))
    sums = [sum(int(x) - int(y) for x, y, z in zip(a, b, c) if z == k) for k in sorted(set(c))]
    tried = [abs(sum(s*d for s, d in zip(signs, sums))) for signs in itertools.product([-1, 1], repeat=len(sums))]
    assert pe.flip_test(a, b, c) == pytest.approx(np.mean([t >= abs(sum(sums)) for t in tried]))

def test_flip_test_at_random_is_calibrated():
    rng = np.random.default_rng(0)
    p = [pe.flip_test(rng.random(60) < .4, rng.random(60) < .4, np.repeat(np.arange(20), 3), n_perm=400, seed=s) for s in range(200)]
    assert .01 < np.mean(np.array(p) < .05) < .1

def test_closing_text_follows_the_answers(tmp_path):
    gold = {(i.state, i.question): i.gold for c in COMBINATIONS for t in ('qa', 'topic') for i in load(f'{t}.{c}')}
    knows = lambda right: lambda states, q: np.array([np.eye(len(q.options))[q.options.index(gold[s, q])] if right else np.full(len(q.options), 1/len(q.options)) for s in states])
    pe.freeze(pe.own('longest-option'), ('qa',), root=tmp_path)
    for slug, right in (('oracle', True), ('blank', False)): pe.freeze(Toy(slug, predict=knows(right)), root=tmp_path)
    by = {v.card.slug: v for v in pe.verdicts(tmp_path)}
    assert set(by) == {'oracle', 'blank'} and by['oracle'].named == (1, *pe.metrics.wilson(50, 50)) and by['oracle'].named_p < .01 and by['oracle'].topic_p < .01 and by['oracle'].e.lo > .5 and by['blank'].topic_p > .05 and by['blank'].named_p > .05 and by['blank'].e.hi < 0
    text = pe.closing_text(tmp_path)
    assert text.count('1 of 2') == 3 and 'ORACLE' in text and 'not shown' not in text and 'can sort chats by topic' in text

def test_published_values_come_from_the_reference():
    p = reference('pingpong_paper')
    assert len(pe.published_rows('qa')) == len(p['table5_results']) == 11
    for c in COMBINATIONS:
        for by in ('shots', 'reasoning'): assert pe.published_summaries(c, by)
        assert bool(pe.published_kinds(c)) == (c in ('id-en', 'jv-id-en', 'su-id-en'))
    assert all(s.table8 is not None for s in pe.same_setting()) and pe.items_of([45.45, 46.46, 4.04])[0] == 99

@given(st.integers(20, 120), st.data())
@fast
def test_items_of_finds_a_number_that_explains_all(n, data):
    ks = data.draw(st.lists(st.integers(0, n), min_size=1, max_size=8))
    best, fit = pe.items_of([round(100*k/n, 2) for k in ks], 130)
    assert fit == len(ks) and best <= n

# CLI

def _run(*args):
    from click.testing import CliRunner
    from polyroute.cli import main
    return CliRunner().invoke(main, ['pingpong', *args])

def test_cli_eval_and_table(tmp_path, monkeypatch):
    monkeypatch.setenv('POLYROUTE_OUTPUTS', str(tmp_path))
    r = _run('eval', 'longest-option', '--task', 'qa', '--combination', 'ha-en', '--json')
    assert r.exit_code == 0 and json.loads(r.output) == {'qa.ha-en': 'computed'}
    r = _run('table', 'qa', '--json', '--no-paper')
    rows = json.loads(r.output)
    assert r.exit_code == 0 and [x['system'] for x in rows] == ['Longest option'] and rows[0]['ID-EN'] == 'not run'
    assert 'paper: Aya23-8B' in _run('table', 'qa').output and 'No decision model' in _run('table', 'verdict').output
    assert _run('eval', 'longest-option', '--shots', '1').exit_code == 2
    for args in (('eval', 'longest-option', '--combination', 'xx'), ('eval', 'no-such-system'), ('table', 'kinds', '--combination', 'xx')): assert _run(*args).exit_code == 1

def test_cli_summaries(tmp_path, monkeypatch):
    monkeypatch.setenv('POLYROUTE_OUTPUTS', str(tmp_path))
    r = _run('summaries', 'lead-3', '--combination', 'id-en', '--no-bertscore', '--json')
    assert r.exit_code == 0 and json.loads(r.output)['lead-3 summary.id-en'] == 'computed'
    assert len(pe.read_scores('lead-3', 'id-en', root=tmp_path).ids) == 10 and _run('summaries', 'nobody').exit_code == 1

def test_cli_with_a_language_model_behind_a_server(tmp_path, monkeypatch):
    pytest.importorskip('openai')
    from openai_server import Server
    monkeypatch.setenv('POLYROUTE_OUTPUTS', str(tmp_path))
    with Server(answer=lambda body: '{"answer": "E"}') as s:
        (tmp_path/'m.toml').write_text(f'kind = "chat"\nbase_url = "{s.url}"\nmodel = "m"\nslug = "served"\n')
        r = _run('eval', str(tmp_path/'m.toml'), '--task', 'qa', '--combination', 'ha-en', '--shots', '1', '--decoding', 'Gemma2-9B-Instruct', '--json')
        assert r.exit_code == 0 and json.loads(r.output) == {'qa.ha-en': 'computed'} and len(s.bodies) == 100
        assert all((b['temperature'], b['top_p'], b['top_k']) == (.1, .9, 5) and 'An example from another chat' in b['messages'][0]['content'] for b in s.bodies)
    a = pe.read_answers(read_card('served', tmp_path), 'qa', 'shots-1', tmp_path)
    assert pe.chose_e(a).all() and a.hit.mean() == .5
