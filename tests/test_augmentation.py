"Views of training rows: answers stay, letters become Latin, nothing of a text is lost."
import random
import pytest
from hypothesis import given, strategies as st
from conftest import fast
from polyroute import augmentation as a
from polyroute.embedding import option_texts
from polyroute.items import DEPARTMENT, Item, Question, load
from polyroute.systems import training_set

ROWS = list(training_set('train_ml').department())
ENGLISH = a.english_texts(ROWS)

def test_english_texts_are_the_english_rows():
    want = {}
    for r in ROWS:
        if r.meta.get('language') == 'en': want.setdefault(r.gold, set()).add(r.state)
    assert {k: set(v) for k, v in ENGLISH.items()} == want and set(want) == set(DEPARTMENT.options)

@fast
@given(st.integers(0, len(ROWS) - 1), st.integers(0, 2**20))
def test_joined_text_keeps_the_text_and_its_answer(n, seed):
    r = ROWS[n]
    got = a.text_view(r, random.Random(seed), 0., 1., ENGLISH)
    if r.meta.get('language', '') in ('', 'en'): assert got == r.state       # generic rows name no language
    else:
        other = got.removeprefix(r.state + ' ') if got.startswith(r.state + ' ') else got.removesuffix(' ' + r.state)
        assert other in ENGLISH[r.gold]

@fast
@given(st.integers(0, len(ROWS) - 1), st.integers(0, 2**20))
def test_no_share_no_view(n, seed): assert a.text_view(ROWS[n], random.Random(seed), 0., 0., ENGLISH) == ROWS[n].state

def test_romanised_rows_are_ascii_and_others_untouched():
    for r in ROWS:
        language = r.meta.get('language', '')
        got = a.romanise(r.state, language)
        assert got.isascii() and got.strip() if language in a.ROMANISED else got == r.state

@pytest.mark.parametrize('text', ['', '\u200d', 'क\u094d\u200dष', '\ud800', 'مرحبا \u202eabc', '😀' * 3, 'आ' * 10000])
def test_any_text_can_be_romanised(text):
    for l in a.ROMANISED: assert isinstance(a.romanise(text, l), str)

def test_arabic_chat_digits(): assert a.romanise('حساب عمر', 'ar') == '7sab 3mr'

@pytest.mark.parametrize('share,kinds', [(0., 1), (1., 3)])
def test_views_of_options(share, kinds):
    seen = {tuple(a.option_view(DEPARTMENT, random.Random(i), share)) for i in range(200)}
    whole, names, texts = tuple(option_texts(DEPARTMENT)), tuple(DEPARTMENT.options), tuple(DEPARTMENT.descriptions)
    sort = {'whole' if v == whole else 'names' if v == names else 'descriptions' if v == texts else 'opaque' if all(x.split(': ', 1)[0] in a.OPAQUE and x.split(': ', 1)[1] == d for x, d in zip(v, texts)) else v for v in seen}
    assert sort == ({'whole'} if share == 0 else {'names', 'descriptions', 'opaque'})

def test_questions_without_descriptions_have_one_view():
    for q in (next(i.question for i in load('train') if i.question.type == 'noul'), Question('q', 'choice', '?', (('a', ''), ('b', '')))):
        assert a.option_view(q, random.Random(0), 1.) == option_texts(q)

def test_opaque_names_differ():
    for i in range(50):
        got = a.option_view(DEPARTMENT, random.Random(i), 1.)
        assert len(set(got)) == len(got)
