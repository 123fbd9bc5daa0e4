"""Words by which experience.py reads the work of agents: what programs print, kinds of commands, corrections."""

import re

FAILED = re.compile(
    r"^\s*(?:exit code [1-9]|<tool_use_error>|error\b|fatal\b|traceback \(most recent|usage: )"
    r"|^\s*(?:[\w./-]+: )?(?:error|fatal|E)(?:\[\w+\])?: |\bexit(?:ed)?(?: with)? (?:code|status):? [1-9]"
    r'|"exit_code": *[1-9]|traceback \(most recent call|command not found|: No such file or directory'
    r"|\b[A-Z]\w+(?:Error|Exception)\b: |^make: \*\*\*|^npm (?:ERR!|error)|\b[1-9]\d* (?:failed|errors?)\b|\bFAILED\b"
    r"|\bBUILD FAILED\b|permission denied|could not (?:connect|find|open)|connection refused|cannot find",
    re.M | re.I,
)
FINE = re.compile(
    r"\b[1-9]\d* passed\b(?!.*\b[1-9]\d* (?:failed|error))|\b0 (?:failed|errors)\b|all (?:tests|checks) passed|"
    r"build success|\bsucceeded\b|\bsuccess(?:fully)?\b",
    re.I,
)
WAY_FAILED = re.compile(
    r"not found|no module named|ModuleNotFoundError|ImportError|no such (?:file|option|command|service|table)"
    r"|permission denied|not recogni[sz]ed|un(?:known|recogni[sz]ed|supported|expected) (?:option|command|flag"
    r"|argument|"
    r"target|switch|key|subcommand|module|task|project|service|profile|environment|host|remote)|"
    r"invalid (?:option|argument|choice|flag)|^usage: |missing (?:script|argument|option|"
    r"required|environment)|no rule to make|(?:could(?: not|n['’]t)|unable to|failed to)"
    r" (?:connect|find|resolve|open|read|load)"
    r"|connection (?:refused|reset)|"
    r"ECONNREFUSED|EACCES|ENOENT|EADDRINUSE|can(?:not|['’]t) (?:find|locate|open|connect|import|access)|is missing"
    r"|specify (?:a|an|the)\b|does not (?:have|contain) an?\b|unauthori[sz]ed|forbidden|"
    r"authentication|not logged in|access denied|timed? ?out|locked|\brequires?\b|must (?:be|run|use|first|have|set"
    r"|not)|"
    r"deprecated|no longer|instead\b|not (?:appear to be )?(?:installed|supported|allowed|permitted|running|set"
    r"|available|configured|read)|"
    r"is (?:required|read-only|disabled)|already in use|does not exist|doesn't exist|environment variable|to replace|"
    r"did you mean|wrong version|incompatible|out of memory|\bkilled\b|too (?:large|many|long)|refus(?:ed|es|ing)",
    re.I | re.M,
)
TRIMMED = re.compile(r"(?: *2>&1| *\| *(?:tail|head)(?: -n? ?\d+| -\d+)?| *[12]?> */dev/null)+ *$")
GOES = re.compile(r"^(?:cd [\"']?[/~][^\s;&|]*[\"']? *(?:&&|;) *)+")
WRAPPERS = re.compile(
    r"^(?:cd \S+ *$|sudo |time |env |nohup |[A-Z_][A-Z0-9_]*=\S* |timeout(?: -\S+)* \S+ |(?:uv|poetry|pipenv|pdm|hatch|"
    r"rye|pixi) run (?:--?[\w-]+(?:[= ](?=[./~])\S+)? )*|npx (?:-y )?|pnpm (?:exec|dlx) |bundle exec "
    r"|(?:docker compose|"
    r"docker-compose) (?:run|exec)(?: --?\w+)* \S+ |docker exec(?: -\w+)* \S+ |(?:\S*/)?python3?(?:\.\d+)? -m |"
    r"(?:\S*/)?bin/(?=\w))"
)
GOALS = tuple(
    (name, re.compile(pattern))
    for name, pattern in (
        ("install", r"\b(?:pip3?|uv pip|uv|npm|yarn|pnpm|poetry|apt(?:-get)?|brew|cargo|gem|bundle|conda|go) (?:-\S+ )*"
         r"(?:install|add|sync|ci|get)\b|\b(?:make|just) (?:install|setup|deps|bootstrap)\b"),
        ("test", r"(?:^|[\s/])(?:py\.?test|tox|nox|unittest|rspec|ctest|jest|vitest|mocha|phpunit|gotestsum"
                 r"|nextest)\b|\b(?:make|"
         r"just|task|npm(?: run)?|yarn(?: run)?|pnpm(?: run)?|cargo|go|mvn|gradle|gradlew|rake|mix|dotnet|bazel|swift|"
         r"\./\S+) (?:-\S+ )*(?:[\w:]*test\w*|check|verify|spec)\b|\btests?\.(?:sh|py)\b|run[_-]?tests"),
        ("lint", r"^(?:ruff|flake8|eslint|pylint|golangci-lint|clippy|shellcheck|black|prettier|isort|biome"
                 r"|stylelint)\b|\b(?:make|just|npm"
         r" run|yarn|pnpm(?: run)?|cargo) (?:lint|format|fmt|clippy|style)"),
        ("types", r"^(?:mypy|pyright|tsc)\b|\b(?:make|just|npm run|yarn|pnpm(?: run)?) (?:types?|typecheck"
                  r"|type-check)\b"),
        ("migrate", r"\b(?:alembic|flyway|liquibase|prisma|knex|diesel|goose|dbmate|sqitch)\b|\bmigrat"),
        ("deploy", r"\b(?:deploy|helm|kubectl apply|terraform apply|fly |vercel|netlify|serverless|ansible-playbook|"
         r"release|publish)"),
        ("docs", r"\b(?:mkdocs|sphinx-build|docs)\b"),
        ("serve", r"\b(?:uvicorn|gunicorn|flask run|runserver|(?:npm run|yarn|pnpm) (?:dev|start)|serve"
                  r"|docker compose up)"),
        ("build", r"^make *$|\b(?:make|just|npm run|yarn|pnpm(?: run)?|cargo|go|mvn|gradle|gradlew|docker|bazel|cmake) "
         r"(?:-\S+ )*(?:build|all|package|compile|image|dist|--build)\b|^(?:gcc|g\+\+|clang|webpack|vite build)\b"),
    )
)  # fmt: skip
JUDGES = ("test", "lint", "types")
"""Goals whose failures tell of the code."""
TELLS_OF_CODE = re.compile(
    r"\b[1-9]\d* (?:\w+ )?(?:failed|failing|failures?|problems?|errors?|warnings?)\b|\bFAIL(?:ED)?\b|✗|✖|\bassert"
    r"|\bexpected\b.*\b(?:received|got|but|to)\b|would reformat|\berror:? ?\[?[A-Z]{1,3}\d{2,}",
    re.I,
)
"""What tests, linters, type checkers print of the code that they judge."""
LOOKS = re.compile(
    r"^(?:(?:\S*/)?pip3? (?:list|show|freeze)|ls|ll|dir|pwd|cat|bat|head|tail|less|grep|rg|find|fd|which|whereis"
    r"|type|echo|printf|stat|file|wc|tree|env|du|df|"
    r"sed -n|git (?:status|log|diff|show|branch|remote|rev-parse|blame)|ps|date|hostname|true|sleep|mkdir|touch|chmod|"
    r"python3? (?:-c|-\s*<<|<<)|node -e|jq|history|man|\S+ --?(?:help|version)$)\b"
)
PREPARES = re.compile(
    r"^(?:git|cp|mv|rm|ln|export|source|\.|kill|pkill|docker (?:ps|pull|compose(?: -\S+(?: \S+\.ya?ml)?)* (?:up|down"
    r"|ps|start)))\b|\binstall\b"
)
STOP_WORDS = frozenset(
    "the and for with from this that into then what when you your run use using get set all one not but can please"
    " instead just make".split()
)
SAYS_NOTHING = frozenset(
    "thank thanks again once more pleas please yes okay sure great nice good now time same going ahead continue"
    " retry".split()
)
"""Words of a request that goes on with the one before."""
_DO = (
    r"(?:use|run|call|do|try|go (?:through|via|with)|write|edit|change|start|invoke|prefer|execute|put|add|ask|open"
    r"|take|"
    r"build|deploy|install|regenerate)"
)
_SO = (
    r"[,;:.!—–-]*\s*(?:(?:and|but|so|just|please|you (?:should|must|have to|need to|can)|we|always|only|rather"
    r"|instead)\s+)*"
)
_DOING = (
    rf"(?:{_DO}|running|using|calling|editing|touch(?:ing)?|commit(?:ting)?|push(?:ing)?|delet(?:e|ing)|modify(?:ing)?|"
    r"restart(?:ing)?|rebuild(?:ing)?|mock(?:ing)?|import(?:ing)?|check(?:ing)?|test(?:ing)?|copy(?:ing)?|creat(?:e"
    r"|ing)|"
    r"installing|deploying|building|starting)\b"
)
CORRECTIONS = tuple(
    re.compile(pattern, re.I)
    for pattern in (
        rf"\b(?:don['’]?t|do not|never|stop|no need to|avoid|(?:should|must)(?: not|n['’]t)|quit)\s+(?P<wrong>{_DOING}"
        rf"[^,;.:!?—\n]{{1,120}}?(?:\.\w[^,;:!?—\n]{{0,40}})?)(?:[,;:.!—–]|\s+and\b"
        rf"|\s+but\b){_SO}{_DO}\b[^!?\n]{{2,200}}?(?=[.!?](?:\s|$)|$|\n)",
        rf"\b{_DO}\s+[^,;!?\n]{{2,120}}?,?\s+(?:instead of|rather than|in place of|and not|not)\s+(?P<wrong>[^,;!?\n]"
        r"{2,120}?)(?=[.,;!?](?:\s|$)|$|\n)",
        rf"\binstead of\s+(?P<wrong>[^,;.!?\n]{{2,120}}),?\s+{_SO}{_DO}\b[^!?\n]{{2,160}}?(?=[.!?](?:\s|$)|$|\n)",
        r"\b(?P<wrong>[^,;!?\n]{2,80}?)\s+(?:does(?: not|n['’]?t) work|won['’]?t work|never works|is (?:broken"
        r"|deprecated|wrong|"
        rf"the wrong way))(?:\s+(?:here|anymore|any more|in this repo\w*|on this \w+))?{_SO}{_DO}\b[^!?\n]{{2,160}}?"
        r"(?=[.!?](?:\s|$)|$|\n)",
        rf"\b(?:always|make sure to|remember to|you (?:have|need) to)\s+{_DO}\b[^,;!?\n]{{2,120}}?\s+(?:before|when"
        rf"|whenever|"
        r"after|each time)\s+(?P<wrong>(?:you\s+)?[^,;.!?\n]{3,120})",
    )
)
REFUSES = re.compile(
    r"\b(?:not|no|nope|nothing|nobody|never|wrong|instead|stop|rather|by hand|no longer|ages ago|left-?over"
    r"|deprecated|careful"
    r"|otherwise|always|have to|must|next time|from now on|unless|but only"
    r"|only (?:half|part)|half of|that(?:['’]s| was| is)? only|left out|use (?:this|that)(?: one)?"
    r"|(?:right|proper|correct|usual) (?:way|one|command)|supposed to"
    r"|for (?:this|that) (?:we|there))\b|n['’]t\b",
    re.I,
)
GOES_ON = re.compile(
    r"^\W*(?:(?:ok|okay|yes|and|so)\W+)?(?:now|next|then|also|fine|good|great|perfect|nice|thanks?)\b"
    r"|\b(?:too|as well)\b|\blooks? (?:good|fine|right)\b",
    re.I,
)
"""Words of a message that asks for something more."""
COMMAND = re.compile(
    r"`[^`\s]+ [^`\n]{2,200}`|(?:^|\s)--?\w[\w-]+(?=[= ])|(?:^|\s)(?:\./|(?:\.?bin|scripts?|ops|tools)/)\w[\w./-]*"
    r"|\b(?:npm|npx|pnpm|yarn|cargo|git|gh|docker|podman|kubectl|helm|terraform|tofu|uvx?|poetry|pip3?|python3?|bundle"
    r"|rake|gradle|\./gradlew|mvn|bazel|nix|aws|gcloud|dbt|dvc|airflow|ansible(?:-playbook)?|pulumi"
    r"|wrangler|sbatch|Rscript|julia"
    r"|dotnet|composer|curl|rsync|psql|mix|sqlfluff|kustomize|spark-submit) [a-z][\w./:-]*"
    r"|\b(?:make|just|task) [a-z][\w-]*(?: [A-Z_]+=|[-_:]\w|(?=[.`\"]?$))"
)
