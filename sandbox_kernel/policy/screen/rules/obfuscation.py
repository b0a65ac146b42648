"""Code that hides what it does: decoders before execution, composed names, letters that look like others, pickles."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import DECODED, FETCHED, RUNS_CODE, RUNS_COMMANDS, Rule, Weight, words

RULES = (
    Rule(
        code=ScreenCode.HIDDEN_EXECUTION,
        weight=Weight.CRITICAL,
        cwe=506,
        script=(
            r"\b(base64|openssl (base64|enc)|xxd|uudecode)\b[^;\n|]*(-d|-D|--decode|-r)\b[^;\n]*\|\s*(sudo\s+)?(\S*/)?(ba|z|da)?(sh|python\w*|perl|ruby|source)\b",
            r"\b(eval|bash -c|sh -c|source)\b[^;\n]*(\$\(|`|<\()[^;\n]*\b(base64|xxd|openssl)\b",
            r"\b(echo|printf)\b[^;\n]*\\x[0-9a-fA-F]{2}[^;\n]*\|\s*(\S*/)?(ba|z)?sh\b",
            r"\b(rev|tr|gunzip|zcat|gzip -dc?)\b[^;\n|]*\|\s*(\S*/)?(ba|z)?sh\b",
            r"(?i)-e(nc(odedcommand)?)?\s+[A-Za-z0-9+/=]{40,}",
        ),
        flows=((f"{RUNS_CODE}|{RUNS_COMMANDS}", DECODED),),
    ),
    Rule(
        code=ScreenCode.HIDDEN_NAME,
        weight=Weight.HIGH,
        cwe=506,
        script=(
            r"\$\{IFS\}|\$IFS\$?\d?|\$'(\\x[0-9a-f]{2}|\\[0-7]{3}){3,}|\$\{\w+:\d+:\d+\}\$\{\w+:\d+",
            r"(?<!\w)[a-z](\"\"|'')[a-z]+ |\b[a-z]\\[a-z]\\?[a-z] ",
        ),
    ),
    Rule(code=ScreenCode.HIDDEN_TEXT, weight=Weight.MEDIUM, cwe=506),
    Rule(code=ScreenCode.HIDDEN_LETTERS, weight=Weight.HIGH, cwe=1007),
    Rule(
        code=ScreenCode.DYNAMIC_EXECUTION,
        weight=Weight.MEDIUM,
        cwe=95,
        names=words(
            "builtins.exec builtins.eval builtins.execfile code.interact codeop.compile_command runpy.run_path runpy.run_module "
            "cProfile.run profile.run trace.Trace().run timeit.timeit().x bdb.Bdb().run pdb.run pdb.runeval doctest.debug_src "
            "pandas.eval().x numexpr.evaluate().x asteval.Interpreter IPython.core.interactiveshell.InteractiveShell.* "
            "get_ipython().run_cell get_ipython().ex get_ipython().ev get_ipython().safe_execfile get_ipython().run_cell_async "
            "RestrictedPython.* execjs.* js2py.* py_mini_racer.* sympy.sympify lib2to3.pgen2.grammar.Grammar.loads "
            "numpy.testing.rundocs numpy.f2py.compile sage.misc.sage_eval.*"
        ),
        shell=(r"^eval .",),
    ),
    Rule(
        code=ScreenCode.DYNAMIC_IMPORT,
        weight=Weight.LOW,
        cwe=470,
        names=words(
            "builtins.__import__ importlib.import_module importlib.__import__ importlib.util.spec_from_file_location importlib.util.module_from_spec importlib.util.spec_from_loader importlib.reload imp.load_module imp.new_module pkgutil.get_loader pkgutil.find_loader zipimport.zipimporter pydoc.locate pydoc.importfile pydoc.safeimport importlib.abc.* pkgutil.resolve_name"
        ),
    ),
    Rule(code=ScreenCode.DYNAMIC_ATTRIBUTE, weight=Weight.MEDIUM, cwe=470),
    Rule(
        code=ScreenCode.UNSAFE_LOAD,
        weight=Weight.LOW,
        cwe=502,
        names=words(
            "pickle.loads pickle.load pickle.Unpickler _pickle.loads cPickle.loads cPickle.load marshal.loads marshal.load dill.load dill.loads cloudpickle.loads "
            "cloudpickle.load shelve.open jsonpickle.decode yaml.load yaml.unsafe_load yaml.full_load yaml.load_all yaml.UnsafeLoader yaml.Loader "
            "ruamel.yaml.YAML().load joblib.load pandas.read_pickle torch.load numpy.loads xml.sax.* lxml.etree.XMLParser "
            "xmlrpc.client.loads jsonpickle.* dill.load_session"
        ),
        attributes=("def __reduce__", "def __reduce_ex__"),
    ),
    Rule(
        code=ScreenCode.UNSAFE_LOAD_FORGED,
        weight=Weight.HIGH,
        cwe=502,
        text=(
            r"\bc(os|posix|nt|subprocess|__builtin__|builtins|commands|pty|socket|sys|runpy)\n\w+\n",
            r"(?s)\x80[\x02-\x05].{0,60}(posix|builtins|subprocess|nt)\x94?.{0,12}(system|eval|exec|Popen|popen|check_output)",
            r"!!python/(object|name|module)(/(apply|new))?:",
            r"\"py/(object|reduce|function|repr|type)\"\s*:",
        ),
        flows=(
            (
                r"(pickle|_pickle|dill|cloudpickle|marshal|jsonpickle|joblib|torch|shelve)\.(loads?|decode|open)|yaml\.(unsafe_)?load",
                f"{FETCHED}|{DECODED}",
            ),
        ),
    ),
    Rule(
        code=ScreenCode.TEMPLATE_INJECTION,
        weight=Weight.HIGH,
        cwe=1336,
        text=(
            r"__class__\s*\.\s*__(mro|base|bases|init|subclasses)__|__subclasses__\s*\(|\.__globals__|__init__\.__globals__|\.__builtins__|\['__(class|globals|builtins|mro|bases)__'\]",
            r"\{\{.{0,80}(config|self|request|lipsum|cycler|joiner|namespace)\s*\.\s*(__|items|application|environ|_)",
            r"@(os|sys|subprocess|__import__|__builtins__|pd\.io|np\.f2py)\b[.(]|@\w+\.__(class|globals|init|builtins)__",
            r"__import__\s*\(\s*\\?['\"](os|subprocess|socket|pty|ctypes|shutil|builtins|sys|urllib\S*|requests|base64)\\?['\"]\s*\)",
        ),
    ),
    Rule(
        code=ScreenCode.NESTED_DECODERS,
        weight=Weight.MEDIUM,
        cwe=506,
        flows=((f"({DECODED}).*", DECODED),),
    ),
)
