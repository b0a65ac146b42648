"""Data: tables that are dropped, inputs that are deleted or overwritten, labels that are turned, people that are sorted."""

from __future__ import annotations

from ....core.screen_codes import ScreenCode
from .rule import Rule, Weight, words

RULES = (
    Rule(
        code=ScreenCode.DATA_DROP,
        weight=Weight.LOW,
        cwe=732,
        names=words("redis.Redis().delete elasticsearch.Elasticsearch().indices.delete"),
        methods=words("drop_table drop_collection delete_many delete_table delete_index"),
        text=(
            r"(?i)\bdrop\s+(table|view|index|schema|column|user|role|trigger)\b",
            r"(?i)\btruncate\s+(table\s+[\w.\"`\[\]]+|\w+\s*(;|$))",
            r"(?i)\bdelete\s+from\s+[\w.\"`\[\]]+\s*(;|$|where\s+(1\s*=\s*1|true)\b)",
            r"(?i)\bupdate\s+[\w.\"`]+\s+set\s+(?:(?!\bwhere\b).){1,300};?\s*$",
            r"(?i)'\s*(or|and)\s+'?1'?\s*=\s*'?1|;\s*drop\s+table\b|\bunion\s+(all\s+)?select\b.{0,200}\bfrom\b|\bxp_cmdshell\b|\binto\s+outfile\b|\bload_file\s*\(",
        ),
    ),
    Rule(
        code=ScreenCode.DATA_DROP_ALL,
        weight=Weight.HIGH,
        cwe=732,
        names=words(
            "sqlalchemy.MetaData().drop_all redis.Redis().flushall redis.Redis().flushdb redis.StrictRedis().flushall"
        ),
        methods=words("drop_all drop_database dropDatabase flushall flushdb delete_bucket delete_database"),
        text=(
            r"(?i)\bdrop\s+(database|keyspace)\b|\bFLUSHALL\b|\bdb\.dropDatabase\(|\bxp_cmdshell\b|\bCOPY\s+\w+\s+(FROM|TO)\s+PROGRAM\b",
        ),
        shell=(
            r"^aws s3 (rm|rb)\b.*(--recursive|--force)|^aws \S+ (delete|terminate)-\S+|^gsutil (-m )?rm -r|^gcloud .* delete\b|^az .* delete\b|^terraform destroy|^kubectl delete|^helm (uninstall|delete)|^dropdb\b|^mysqladmin .*drop|^redis-cli .*flush(all|db)|^mongo\S* .*dropDatabase|^docker (system|volume|image) prune|^docker (rm|rmi|volume rm)",
        ),
    ),
    Rule(
        code=ScreenCode.DATA_DELETE_INPUTS,
        weight=Weight.HIGH,
        cwe=732,
        shell=(
            r"^rm (-\S+ )*[\"']?(/mnt/data|/content|/kaggle/input|/data|/workspace)(/\*|/|$)",
            r"^rm (.* )?\S*\*\.(csv|parquet|xlsx|json|db|sqlite|pkl|h5|feather|txt|ipynb|pdf|docx?)$",
            r"^find .*\*\.(csv|parquet|xlsx|json|db|ipynb)\S* .*(-delete|rm)\b",
        ),
    ),
    Rule(
        code=ScreenCode.DATA_OVERWRITE,
        weight=Weight.LOW,
        shell=(r"^truncate .*(-s|--size)[ =]?0\b", r"^sed -i\S* .*\.(csv|json|tsv|txt)$"),
        names=words("os.truncate os.ftruncate"),
    ),
    Rule(
        code=ScreenCode.DATA_HISTORY,
        weight=Weight.MEDIUM,
        shell=(
            r"^git (reset --hard|clean -\w*f|push .*(--force|-f)\b|filter-branch|reflog expire|branch -D|checkout -- \.|update-ref -d|gc --prune)",
        ),
    ),
    Rule(
        code=ScreenCode.DATA_LABELS,
        weight=Weight.LOW,
        text=(
            r"(?i)\b(poison(ed|ing)?|backdoor(ed)?|trigger)[ _](data(set)?|labels?|samples?|rate|fraction|ratio|images?|model|train\w*)\b|\bflip(ped)?_labels?\b|\blabel_flip\w*",
        ),
    ),
    Rule(code=ScreenCode.DATA_PEOPLE, weight=Weight.LOW, cwe=None),
)
