"""What analysts write over a clinic's visits: answered as it stands, or refused with what to do."""

from __future__ import annotations

import re
from pathlib import Path

import duckdb
import pytest

from sfumato.dp.refusal import Refused
from sfumato.query.plan import Plan, make_plan
from sfumato.query.plan_text import plan_text
from sfumato.query.postprocess.having_order_limit import Row, apply_having_order_limit
from sfumato.query.sql.select import read_sql
from sfumato.vault.card.data_card import Card, read_card
from support.small_vaults import card as toml

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "questions.md").read_text("utf-8")
SEEN = '[columns.seen]\ntype = "timestamp"\nlower = 2026-01-01\nupper = 2026-12-31\n'

ROWS = (
    "CREATE TABLE visits AS SELECT 'p' || i % 7 AS patient, 'z' || i % 3 AS zip, i * 7 % 90 AS age,"
    " 'fm'[1 + i % 2] AS sex, i * 13 % 50 + 0.5 AS cost, DATE '2026-01-01' + i::INTEGER AS day,"
    " i % 3 = 1 AS sick, TIMESTAMP '2026-01-01 05:00:00' AS seen FROM range(40) t(i)",
    "CREATE TABLE drugs AS SELECT 'p' || i % 8 AS patient, 'ab'[1 + i % 2] AS drug,"
    " i * 11 % 90 AS dose, DATE '2026-01-01' + (i * 3 % 40)::INTEGER AS given FROM range(30) t(i)",
    "CREATE TABLE patients AS SELECT 'p' || i AS patient, 1930 + 9 * i AS born FROM range(5) t(i)",
    "CREATE TABLE zips AS SELECT 'z' || i AS zip, ['north', 'south'][1 + i % 2] AS region"
    " FROM range(2) t(i)",
)


@pytest.fixture(scope="module")
def card() -> Card:
    (shown,) = re.findall(r"```toml\n(.*?)```", PAGE, re.S)
    return read_card("visits", toml(shown.replace("[columns.sick]", SEEN + "[columns.sick]")))


def planned(card: Card, text: str) -> Plan:
    return make_plan(card, read_sql(text, "visits"))


VISITS = "(SELECT patient, COUNT(*) AS n FROM visits GROUP BY patient)"
DRUGS = "(SELECT patient, SUM(dose) AS m FROM drugs GROUP BY patient)"
BORN = "(SELECT patient, MIN(born) AS born FROM patients GROUP BY patient)"
LIVED = (
    "(SELECT patient, MAX(zip) AS zip, ANY_VALUE(sex) AS sex, COUNT(*) AS n FROM visits "
    "GROUP BY patient)"
)
ANSWERED = [
    "select count(1) from visits",
    "SELECT COUNT(*) -- how many\nFROM visits /* of all */ WHERE sick = TRUE;",
    'SELECT "sex", COUNT(*) AS "number of visits" FROM "visits" GROUP BY "sex"',
    "SELECT sex, COUNT(*) FROM visits GROUP BY 1 ORDER BY 2 DESC LIMIT 3",
    "SELECT sex, COUNT(*) n FROM visits GROUP BY sex HAVING n > 10 ORDER BY n",
    "SELECT sex, COUNT(*) FROM visits GROUP BY sex ORDER BY COUNT(*) DESC NULLS LAST",
    "SELECT sex, COUNT(*) FROM visits GROUP BY sex HAVING COUNT(*) BETWEEN 10 AND 100",
    "SELECT sex, AVG(cost) FROM visits GROUP BY sex HAVING COUNT(*) > 100",
    "SELECT sum(cost) total, count(*) n, total / n mean FROM visits",
    "SELECT sex, COUNT(*) * 1.0 / SUM(COUNT(*)) OVER () AS share FROM visits GROUP BY sex",
    "SELECT sex, sick, 100.0 * COUNT(*) / SUM(COUNT(*)) OVER (PARTITION BY sex) AS percent "
    "FROM visits GROUP BY sex, sick ORDER BY percent DESC",
    "SELECT date_trunc('month', day) AS m, SUM(cost) / SUM(SUM(cost)) OVER () AS part "
    "FROM visits GROUP BY m",
    "SELECT ABS(AVG(cost) - AVG(age)) AS gap FROM visits",
    "SELECT SQRT(VAR_SAMP(cost)), STDDEV(cost) / SQRT(COUNT(*)) AS se FROM visits",
    "SELECT AVG(cost) - 1.96 * STDDEV(cost) / SQRT(COUNT(cost)) AS low FROM visits",
    "SELECT LN(AVG(cost)), LOG10(COUNT(*)), POWER(AVG(age), 2), EXP(AVG(age) / 100) FROM visits",
    "SELECT AVG(ABS(cost - 100)), AVG(POWER(age, 2)) FROM visits",
    "SELECT PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY cost) FROM visits",
    "SELECT sex, PERCENTILE_DISC(0.9) WITHIN GROUP (ORDER BY age DESC) FROM visits GROUP BY sex",
    "SELECT MODE() WITHIN GROUP (ORDER BY sex) FROM visits",
    "SELECT QUANTILE_CONT(cost, 0.5) FROM visits WHERE day BETWEEN '2026-01-01' AND '2026-03-31'",
    "SELECT CASE WHEN age < 18 THEN '0-17' WHEN age BETWEEN 18 AND 64 THEN '18-64' ELSE '65+' END "
    "AS age_group, COUNT(*) AS n, AVG(cost) FROM visits GROUP BY age_group ORDER BY age_group",
    "SELECT CASE sex WHEN 'f' THEN 'women' ELSE 'men' END AS who, COUNT(*) FROM visits GROUP BY 1",
    "SELECT IF(age > 65, 'old', 'young') AS a, COUNT(*) FROM visits GROUP BY a",
    "SELECT COALESCE(sex, 'unknown') AS s, COUNT(*) FROM visits GROUP BY 1",
    "SELECT COUNT(*) FILTER (WHERE cost > 100) * 1.0 / COUNT(*) AS share FROM visits",
    "SELECT SUM(cost) FILTER (WHERE sex = 'f') - SUM(cost) FILTER (WHERE sex = 'm') FROM visits",
    "SELECT EXTRACT(MONTH FROM day) AS m, COUNT(*) FROM visits GROUP BY m",
    "SELECT DATE_PART('quarter', day) AS q, COUNT(*) FROM visits GROUP BY q",
    "SELECT YEAR(day), COUNT(DISTINCT patient) FROM visits GROUP BY YEAR(day)",
    "SELECT date_trunc('month', day) AS month, SUM(cost) FROM visits GROUP BY 1 ORDER BY 1",
    "SELECT seen::date AS d, COUNT(*) FROM visits GROUP BY d",
    "SELECT COUNT(*) FROM visits WHERE CAST(seen AS DATE) = '2026-03-04'",
    "SELECT SUM(sick::int), AVG(CAST(age > 60 AS INT)), AVG(CAST(cost AS DOUBLE)) FROM visits",
    "SELECT AVG(CASE WHEN sick THEN 1.0 ELSE 0.0 END) AS share FROM visits",
    "SELECT COUNT(*) FROM visits WHERE COALESCE(sick, FALSE) AND zip IS NOT NULL",
    "SELECT COUNT(*) FROM visits WHERE sick IS TRUE AND NOT (age > 65 OR cost < 10)",
    "SELECT COUNT(*) FROM visits WHERE age NOT BETWEEN 18 AND 65 AND sex NOT IN ('f')",
    "WITH s AS (SELECT * FROM visits WHERE sick) SELECT sex, COUNT(*) FROM s GROUP BY sex",
    "SELECT COUNT(*) FROM (SELECT * FROM visits WHERE sick) AS t WHERE t.age > 60",
    "WITH s AS (SELECT sex, FLOOR(age / 10) * 10 AS decade, cost AS c FROM visits) "
    "SELECT decade, AVG(s.c) AS m FROM s GROUP BY decade HAVING m > 3 ORDER BY decade",
    "WITH s AS (SELECT * FROM visits WHERE sick), "
    "n AS (SELECT patient, COUNT(*) AS n FROM s GROUP BY patient) SELECT AVG(n) FROM n WHERE n > 1",
    "WITH v AS (SELECT * FROM visits WHERE sick) SELECT z.region, COUNT(*) FROM v "
    "JOIN zips z ON v.zip = z.zip GROUP BY z.region",
    "SELECT n, COUNT(*) AS people FROM (SELECT patient, COUNT(*) AS n FROM visits "
    "GROUP BY patient) GROUP BY n ORDER BY n",
    "SELECT v.sex, COUNT(*) FROM visits v INNER JOIN patients p ON p.patient = v.patient "
    "WHERE p.born >= 1980 GROUP BY v.sex",
    "SELECT sex, MAX(cost) - MIN(cost) AS span FROM visits GROUP BY sex",
    "SELECT v.sex, d.drug, COUNT(*), AVG(v.cost), SUM(d.dose) FROM visits v JOIN drugs d "
    "ON v.patient = d.patient GROUP BY v.sex, d.drug",
    "SELECT drug, COUNT(DISTINCT v.patient), MEDIAN(dose) FROM visits v LEFT JOIN drugs d "
    "ON v.patient = d.patient AND v.day = d.given GROUP BY drug",
    "SELECT AVG(n) FROM (SELECT v.patient, COUNT(*) AS n FROM visits v JOIN drugs d ON d.given = "
    "v.day AND d.patient = v.patient AND d.dose = v.age GROUP BY v.patient)",
    "SELECT sex, SUM(cost) / NULLIF(SUM(age), 0) FROM visits GROUP BY sex",
    "SELECT APPROX_COUNT_DISTINCT(zip), CORR(age, cost) FROM visits",
    "SELECT ROUND(AVG(cost), 2) AS m, ROUND(STDDEV_SAMP(cost), 2) AS s FROM visits",
    "SELECT AVG(CEIL(cost / 10)) FROM visits",
    "WITH a AS (SELECT patient, COUNT(*) AS n FROM visits GROUP BY patient), b AS (SELECT "
    "patient, MAX(born) AS y FROM patients GROUP BY patient) SELECT AVG(n) FROM a JOIN b "
    "USING (patient)",
    "SELECT AVG(n + m) FROM (SELECT patient, COUNT(*) AS n FROM visits GROUP BY patient) JOIN "
    "(SELECT patient, COUNT(*) AS m FROM drugs GROUP BY patient) USING (patient)",
    f"SELECT AVG(v.n), CORR(v.n, d.m) FROM {VISITS} v JOIN {DRUGS} d ON v.patient = d.patient",
    f"SELECT FLOOR(p.born / 20) * 20 AS years, AVG(COALESCE(d.m, 0)) AS dose FROM {BORN} p "
    f"LEFT JOIN {DRUGS} d ON d.patient = p.patient GROUP BY years ORDER BY years",
    f"SELECT COUNT(*), COUNT(DISTINCT v.patient), REGR_SLOPE(d.m, v.n) FROM {VISITS} v "
    f"JOIN {DRUGS} d USING (patient) JOIN {BORN} p USING (patient) WHERE p.born > 1950",
    f"SELECT v.n, w.n, COUNT(*) FROM {VISITS} v JOIN {VISITS} w USING (patient) GROUP BY v.n, w.n",
    f"SELECT z.region, AVG(p.n) FROM {LIVED} p JOIN zips z ON p.zip = z.zip GROUP BY z.region",
    f"SELECT region, sex, COUNT(*), MEDIAN(n) FROM {LIVED} p LEFT JOIN zips USING (zip) "
    "GROUP BY region, sex",
    f"SELECT sex, AVG(d.m) FROM {LIVED} p JOIN {DRUGS} d ON d.patient = p.patient GROUP BY sex",
    f"SELECT COUNT(DISTINCT p.zip), MODE(region) FROM {LIVED} p JOIN zips z ON z.zip = p.zip",
]

ZIPS = "JOIN zips z ON v.zip = z.zip"
REFUSED = [
    ("SELECT sex, COUNT(*) * 100.0 / (SELECT COUNT(*) FROM visits) FROM visits GROUP BY sex",
     "SUM(COUNT(*)) OVER ()"),
    ("SELECT COUNT(*) FROM visits WHERE zip IN (SELECT zip FROM zips WHERE region = 'north')",
     "JOIN it"),
    ("SELECT COUNT(*) FROM visits WHERE EXISTS (SELECT 1 FROM patients p "
     "WHERE p.patient = visits.patient)", "inner SELECT, grouped by the person"),
    ("SELECT COUNT(*) FROM visits WHERE sick UNION SELECT COUNT(*) FROM visits", "FILTER"),
    ("SELECT COUNT(*) FROM visits WHERE day < DATE '2026-01-01' + INTERVAL 1 MONTH",
     "the date itself"),
    ("SELECT SUM(cost) FROM visits WHERE day > CURRENT_DATE - INTERVAL '30 days'",
     "the date itself"),
    ("SELECT EXTRACT(DOW FROM day) AS d, COUNT(*) FROM visits GROUP BY d", "isodow"),
    ("SELECT weekday(day) AS d, COUNT(*) FROM visits GROUP BY d", "isodow(day)"),
    ("SELECT strftime(day, '%Y-%m') AS m, COUNT(*) FROM visits GROUP BY 1", "date_trunc('month'"),
    ("SELECT COUNT(*) FROM visits WHERE zip ILIKE '10%'", "LIKE 'a%'"),
    ("SELECT COUNT(*) FROM visits WHERE LOWER(sex) = 'f'", "x IN ('a', 'A')"),
    ("SELECT COUNT(*) FROM visits WHERE zip LIKE '%01'", "LIKE 'x%'"),
    ("SELECT COUNT(*) FROM visits WHERE age IN (1, 2, NULL)", "IS NULL"),
    ("SELECT sex, zip, COUNT(*) FROM visits GROUP BY ROLLUP (sex, zip)", "its own question"),
    ("SELECT sex, RANK() OVER (ORDER BY COUNT(*) DESC) FROM visits GROUP BY sex", "costs nothing"),
    ("SELECT AVG(LN(cost)) FROM visits", "SQRT(AVG(x))"),
    ("SELECT LOG(AVG(cost)) FROM visits", "LN(x) or LOG10(x)"),
    ("SELECT age // 10 * 10 AS decade, COUNT(*) FROM visits GROUP BY 1", "FLOOR(a / b)"),
    ("SELECT AVG(age % 10) FROM visits", "FLOOR(a / b) * b"),
    ("SELECT sex || '-' || zip AS k, COUNT(*) FROM visits GROUP BY k", "both columns"),
    ("SELECT STRING_AGG(sex, ',') FROM visits", "MODE(x)"),
    ("SELECT SUM(DISTINCT cost) FROM visits", "COUNT(DISTINCT x)"),
    ("SELECT COUNT(*) FROM main.visits", "own name alone"),
    ("SELECT sex, COUNT(*) FROM visits GROUP BY sex OFFSET 1", "LIMIT"),
    ("SELECT sex, COUNT(*) FROM visits GROUP BY sex FETCH FIRST 5 ROWS ONLY", "LIMIT 5"),
    ("SELECT sex, COUNT(*) AS n FROM visits GROUP BY sex ORDER BY n NULLS FIRST", "NULLS FIRST"),
    ("SELECT cost::decimal(10, 1) AS c, COUNT(*) FROM visits GROUP BY c", "ROUND(x, 2)"),
    ("SELECT COUNT(DISTINCT CAST(zip AS DOUBLE)) FROM visits", "Leave the cast out"),
    ("WITH s AS (SELECT sex FROM visits) SELECT AVG(cost) FROM s", "It gives: sex"),
    ("WITH s AS (SELECT sex FROM visits), t AS (SELECT 1) SELECT COUNT(*) FROM s", "leave it out"),
    ("WITH s AS (SELECT *, cost * 2 AS c FROM visits) SELECT AVG(c) FROM s", "Name the columns"),
    ("WITH s AS (SELECT age AS c FROM visits) SELECT FLOOR(c / 9) AS c, COUNT(*) FROM s GROUP BY c",
     "another name"),
    ("SELECT COUNT(*) FROM (SELECT sex FROM visits LIMIT 10)", "Leave it out"),
    ("WITH a AS (SELECT AVG(cost) AS m FROM visits) SELECT m FROM a", "as its own question"),
    ("SELECT COUNT(*) FROM visits JOIN (SELECT DISTINCT patient FROM patients) USING (patient)",
     "group by the person"),
    (f"SELECT AVG(n) FROM {VISITS} v JOIN visits w ON w.patient = v.patient",
     "one row for each person too"),
    ("SELECT sex, AVG(n) FROM (SELECT patient, sex, COUNT(*) AS n FROM visits "
     "GROUP BY patient, sex) GROUP BY sex", "MIN(x) AS x"),
    (f"SELECT AVG(n) FROM (SELECT patient, n FROM {VISITS} x WHERE n > 1) v JOIN {DRUGS} d "
     "ON d.patient = v.patient", "conditions into WHERE"),
    (f"SELECT AVG(m) FROM {VISITS} v JOIN {DRUGS} d ON d.m = v.n", "a.person = b.person"),
    (f"SELECT AVG(m) FROM {VISITS} v JOIN {DRUGS} d ON v.patient = d.patient AND d.m = v.n",
     "conditions into WHERE"),
    (f"SELECT AVG(m) FROM {VISITS} v JOIN {DRUGS} d ON v.patient = v.patient",
     "a.person = b.person"),
    (f"SELECT AVG(m) FROM {VISITS} v JOIN {DRUGS} d USING (m)", "a.person = b.person"),
    (f"SELECT AVG(m) FROM {VISITS} v, {DRUGS} d", "ON a.x = b.x"),
    (f"SELECT AVG(m) FROM {VISITS} v RIGHT JOIN {DRUGS} d USING (patient)", "LEFT JOIN"),
    (f"SELECT AVG(m) FROM {VISITS} v JOIN {DRUGS} v USING (patient)", "Give each its own"),
    (f"SELECT AVG(m) FROM {VISITS} v LEFT JOIN {DRUGS} d USING (patient) JOIN {BORN} p "
     "ON p.patient = d.patient", "not from a LEFT JOIN"),
    (f"SELECT COUNT(DISTINCT d.patient) FROM {VISITS} v LEFT JOIN {DRUGS} d USING (patient)",
     "of a table before it"),
    (f"SELECT AVG(v.m) FROM {VISITS} v JOIN {DRUGS} d USING (patient)", "It gives: n, patient"),
    (f"SELECT AVG(x.m) FROM {VISITS} v JOIN {DRUGS} d USING (patient)", "that FROM gives"),
    (f"SELECT AVG(n) FROM {VISITS} v JOIN {VISITS} w USING (patient)", "name before it"),
    (f"SELECT AVG(v.n) FROM {VISITS} v JOIN (SELECT COUNT(*) AS m FROM drugs GROUP BY patient) d "
     "ON d.patient = v.patient", "Add the person's column"),
    (f"SELECT AVG(k) FROM {VISITS} v LEFT JOIN (SELECT patient, SUM(dose) + 1 AS k FROM drugs "
     "GROUP BY patient) d USING (patient)", "Write the arithmetic in the outer SELECT"),
    (f"SELECT AVG(m) FROM {VISITS} v LEFT JOIN (SELECT patient, COUNT(*) AS m FROM drugs "
     "GROUP BY patient HAVING COUNT(*) > 1) d USING (patient)", "into the outer SELECT"),
    (f"SELECT FLOOR(v.n / 2) AS n, COUNT(*) FROM {VISITS} v JOIN {DRUGS} d USING (patient) "
     "GROUP BY n", "another name"),
    (f"SELECT FLOOR(v.n / 2) AS d, COUNT(*) FROM {VISITS} v JOIN {DRUGS} d USING (patient) "
     "GROUP BY d", "another name"),
    (f'SELECT v.n AS "V.n", COUNT(*) FROM {VISITS} v JOIN {VISITS} w USING (patient) '
     "GROUP BY v.n", "another name"),
    (f"SELECT v.*, COUNT(*) FROM {VISITS} v JOIN {DRUGS} d USING (patient)", "Name a column"),
    (f"SELECT SUM(v.cost) FROM (SELECT zip FROM visits) v {ZIPS}", "It gives: zip"),
    ("SELECT COUNT(*) FROM visits v JOIN drugs d ON v.day = d.given", "equal columns with AND"),
    ("SELECT COUNT(*) FROM visits v JOIN drugs d ON v.patient = d.patient AND d.given > v.day",
     "into WHERE"),
    ("SELECT COUNT(*) FROM visits v LEFT JOIN drugs d ON v.patient = d.patient AND d.drug = 'a'",
     "into WHERE"),
    ("SELECT COUNT(*) FROM visits v RIGHT JOIN drugs d ON v.patient = d.patient", "LEFT JOIN"),
    (f"SELECT COUNT(*) FROM (SELECT age FROM visits) v {ZIPS}", "It gives: age"),
    ("SELECT COUNT(*) FROM (SELECT zip AS z FROM visits) JOIN zips USING (zip)", "It gives: z"),
    ("SELECT COUNT(*) FROM visits JOIN (SELECT region FROM zips) USING (zip)", "It gives: region"),
    (f"SELECT SUM(visits.cost) FROM (SELECT zip, cost FROM visits) v {ZIPS}", "that FROM gives"),
    (f"SELECT region, COUNT(*) FROM (SELECT zip, sex AS region FROM visits) v {ZIPS} "
     "GROUP BY region", "name before it"),
    (f"SELECT AVG(age) FROM (SELECT zip FROM visits) v {ZIPS} JOIN patients p ON p.patient = v.zip",
     "name before it"),
    ("SELECT SUM(n) FROM visits v JOIN (SELECT zip, region AS n FROM zips) z USING (zip)",
     "name before it"),
    ("SELECT SUM(cost) AS cost FROM (SELECT zip FROM visits)", "It gives: zip"),
    ("SELECT cost AS cost, COUNT(*) FROM (SELECT zip FROM visits) GROUP BY cost", "It gives: zip"),
    ("SELECT COUNT(*) AS sick FROM (SELECT zip FROM visits) WHERE sick", "It gives: zip"),
    ("SELECT COUNT(*) FROM visits v LEFT JOIN (SELECT * FROM zips WHERE region = 'north') z "
     "ON v.zip = z.zip", "FILTER"),
    ("SELECT z.r, COUNT(*) FROM visits v LEFT JOIN (SELECT zip, COALESCE(region, 'north') AS r "
     "FROM zips) z ON v.zip = z.zip GROUP BY z.r", "in the outer SELECT"),
    ("SELECT COUNT(*) FROM (SELECT * FROM visits) z JOIN (SELECT * FROM zips) z ON z.zip = z.zip",
     "its own"),
    ("SELECT COUNT(DISTINCT patient) FROM (SELECT COUNT(*) AS n FROM visits GROUP BY patient)",
     "Add it"),
    ("SELECT SUM(cost) FROM (SELECT * FROM (SELECT zip FROM visits))", "It gives: zip"),
    ("SELECT SUM(cost) FROM (SELECT * FROM (SELECT zip, age AS cost FROM visits) v JOIN zips "
     "USING (zip))", "Name the columns"),
    (f"SELECT SUM(cost) FROM (SELECT z.* FROM visits v {ZIPS})", "Name the columns"),
    ("SELECT SUM(cost) FROM (SELECT z.* FROM visits)", "Name the columns"),
    ("SELECT FLOOR(age / 9) AS age, COUNT(*) FROM visits GROUP BY age", "another name"),
    (f"SELECT FLOOR(v.age / 9) AS age, COUNT(*) FROM visits v {ZIPS} GROUP BY age", "another name"),
    ("SELECT age AS k, COUNT(*) AS age FROM visits GROUP BY 1 HAVING age > 2", "another name"),
    ("SELECT COUNT(*) FROM (SELECT patient AS who, COUNT(*) AS patient FROM visits "
     "GROUP BY visits.patient HAVING patient > 2)", "another name"),
    ("SELECT COUNT(DISTINCT who) FROM (SELECT patient AS who, COUNT(*) AS patient FROM visits "
     "GROUP BY patient)", "another name"),
]  # fmt: skip


@pytest.mark.parametrize("text", ANSWERED)
def test_what_an_analyst_writes_is_answered_as_it_stands(card: Card, text: str) -> None:
    assert planned(card, text).aggregates


@pytest.mark.parametrize(("text", "instead"), REFUSED, ids=[text for text, _ in REFUSED])
def test_what_is_refused_has_its_place_and_what_to_write(
    card: Card, text: str, instead: str
) -> None:
    with pytest.raises(Refused) as refused:
        planned(card, text)
    assert refused.value.code == "not-in-language"
    assert re.search(r"line \d+, column \d+", str(refused.value))
    assert instead in str(refused.value)


@pytest.mark.parametrize("of", ["MAX(day)", "MEDIAN(seen)", "CORR(cost, day)"])
def test_a_date_where_a_number_should_be_is_told_what_dates_are_for(card: Card, of: str) -> None:
    with pytest.raises(Refused, match=r"takes only numbers.*line 1, column") as refused:
        planned(card, f"SELECT {of} FROM visits")
    assert "GROUP BY date_trunc('month', it)" in refused.value.next_step


SAID_TWICE = [
    ("WITH s AS (SELECT cost * 2 AS c FROM visits WHERE sick) SELECT AVG(c) FROM s WHERE c > 9",
     "SELECT AVG(cost * 2) FROM visits WHERE sick AND cost * 2 > 9"),
    ("SELECT COUNT(*) FROM (SELECT * FROM visits WHERE sick OR age > 9) WHERE cost > 1 OR sick",
     "SELECT COUNT(*) FROM visits WHERE (sick OR age > 9) AND (cost > 1 OR sick)"),
    ("WITH visits AS (SELECT * FROM visits WHERE sick) SELECT COUNT(*) FROM visits",
     "SELECT COUNT(*) FROM visits WHERE sick"),
    ("WITH a AS (SELECT age - 1 AS x FROM visits), b AS (SELECT x * 3 AS y FROM a) "
     "SELECT SUM(y) FROM b", "SELECT SUM((age - 1) * 3) FROM visits"),
    ("WITH a AS (SELECT cost AS age, age AS cost FROM visits) SELECT SUM(age - cost) FROM a",
     "SELECT SUM(cost - age) FROM visits"),
    ("WITH v AS (SELECT zip AS z, sick FROM visits WHERE age > 9) SELECT zips.region, COUNT(*) "
     "FROM v JOIN zips ON v.z = zips.zip WHERE sick GROUP BY zips.region",
     "SELECT zips.region, COUNT(*) FROM visits JOIN zips ON visits.zip = zips.zip "
     "WHERE visits.age > 9 AND sick GROUP BY zips.region"),
    ("WITH s AS (SELECT * FROM visits WHERE sick) SELECT AVG(n) FROM "
     "(SELECT patient, COUNT(*) AS n FROM s GROUP BY patient)",
     "SELECT AVG(n) FROM (SELECT patient, COUNT(*) AS n FROM visits WHERE sick "
     "GROUP BY patient)"),
    ("SELECT COUNT(*) FROM visits WHERE DATE(seen) > '2026-01-01'",
     "SELECT COUNT(*) FROM visits WHERE date_trunc('day', seen) > '2026-01-01'"),
    ("SELECT AVG(CAST(cost AS DOUBLE)) FROM visits", "SELECT AVG(cost) FROM visits"),
    ("SELECT AVG(TRY_CAST(cost AS DOUBLE)), SUM(TRY_CAST(sick AS INT)) FROM visits",
     "SELECT AVG(cost), SUM(CAST(sick AS INT)) FROM visits"),
    ("SELECT TRY_CAST(seen AS DATE) AS d, TRY_CAST(SUM(cost) AS DOUBLE) / COUNT(*) AS m "
     "FROM visits GROUP BY d",
     "SELECT CAST(seen AS DATE) AS d, SUM(cost) / COUNT(*) AS m FROM visits GROUP BY d"),
    ("WITH a AS (SELECT zip, cost FROM visits WHERE sick), b AS (SELECT zip, region FROM zips) "
     "SELECT b.region, SUM(a.cost) FROM a JOIN b ON a.zip = b.zip GROUP BY b.region",
     "SELECT region, SUM(cost) FROM visits JOIN zips USING (zip) WHERE sick GROUP BY region"),
    ("SELECT region, SUM(cost) FROM (SELECT zip, cost FROM visits) JOIN (SELECT zip, region FROM "
     "zips) USING (zip) GROUP BY region",
     "SELECT region, SUM(cost) FROM visits JOIN zips USING (zip) GROUP BY region"),
    ("SELECT r, COUNT(*) FROM (SELECT zip AS a, age FROM visits WHERE age > 9) v LEFT JOIN (SELECT "
     "zip AS b, region AS r FROM zips) z ON v.a = z.b WHERE age < 60 GROUP BY r",
     "SELECT region AS r, COUNT(*) FROM visits v LEFT JOIN zips z ON v.zip = z.zip "
     "WHERE age > 9 AND age < 60 GROUP BY region"),
    ("SELECT SUM(p.n) FROM visits v JOIN (SELECT patient, 2026 - born AS n FROM patients WHERE "
     "born > 1950) p ON v.patient = p.patient WHERE sick",
     "SELECT SUM(2026 - p.born) FROM visits v JOIN patients p USING (patient) "
     "WHERE p.born > 1950 AND v.sick"),
    ("SELECT SUM(v.cost) AS s, COUNT(*) AS n, s / n AS each FROM (SELECT zip, cost FROM visits) v "
     "JOIN zips z ON v.zip = z.zip",
     "SELECT SUM(v.cost) AS s, COUNT(*) AS n, SUM(v.cost) / COUNT(*) AS each FROM visits v "
     "JOIN zips z ON v.zip = z.zip"),
    ("WITH a AS (SELECT zip, cost FROM visits), b AS (SELECT a.cost AS c, z.region FROM a JOIN "
     "zips z ON a.zip = z.zip) SELECT region, SUM(c) FROM b GROUP BY region",
     "SELECT region, SUM(cost) FROM visits JOIN zips USING (zip) GROUP BY region"),
    ("SELECT COUNT(DISTINCT who) FROM (SELECT patient AS who, COUNT(*) AS n FROM visits "
     "GROUP BY patient) WHERE n > 1",
     "SELECT COUNT(DISTINCT patient) FROM (SELECT patient, COUNT(*) AS n FROM visits "
     "GROUP BY patient) WHERE n > 1"),
    ("WITH s AS (SELECT * FROM (SELECT age AS cost, zip FROM visits WHERE sick) x) "
     "SELECT zip, SUM(cost) FROM s GROUP BY zip",
     "SELECT zip, SUM(age) FROM visits WHERE sick GROUP BY zip"),
    ("SELECT z.region, SUM(v.cost) FROM (SELECT t.* FROM (SELECT zip, age + 1 AS cost FROM visits) "
     f"AS t) v {ZIPS} GROUP BY z.region",
     f"SELECT z.region, SUM(v.age + 1) FROM visits v {ZIPS} GROUP BY z.region"),
    ("SELECT drug, COUNT(*) FROM visits v JOIN drugs d ON (d.given = v.day AND v.patient = "
     "d.patient) WHERE v.age > 9 GROUP BY drug",
     "WITH old AS (SELECT patient, day FROM visits WHERE age > 9), d AS (SELECT patient, given AS "
     "day, drug FROM drugs) SELECT drug, COUNT(*) FROM old JOIN d USING (patient, day) "
     "GROUP BY drug"),
    ("SELECT COUNT(*), SUM(dose) FROM visits v LEFT JOIN drugs d ON v.patient = d.patient AND "
     "v.day = d.given AND v.age = d.dose AND d.given = v.day",
     "SELECT COUNT(*), SUM(dose) FROM visits v LEFT JOIN drugs d ON v.age = d.dose AND "
     "d.given = v.day AND v.patient = d.patient"),
    ("SELECT COUNT(*) FROM visits WHERE sick = 1", "SELECT COUNT(*) FROM visits WHERE sick"),
    ("SELECT COUNT(*) FROM visits WHERE sick <> 1 OR 0 = sick",
     "SELECT COUNT(*) FROM visits WHERE sick = FALSE"),
    ("SELECT sex, AVG(CASE sick WHEN 0 THEN 1 ELSE 2 END) FROM visits WHERE sick IN (0, 1.0) "
     "GROUP BY sex",
     "SELECT sex, AVG(CASE WHEN NOT sick THEN 1 ELSE 2 END) FROM visits WHERE sick IN (TRUE, "
     "FALSE) GROUP BY sex"),
    ("SELECT AVG(n) FROM (SELECT patient, COUNT(*) AS n FROM visits WHERE sick = 1 GROUP BY "
     "patient)",
     "SELECT AVG(n) FROM (SELECT patient, COUNT(*) AS n FROM visits WHERE sick GROUP BY patient)"),
    ("SELECT COUNT(patient) FROM visits", "SELECT COUNT(*) FROM visits"),
    ("SELECT sex, COUNT(v.patient) AS n, SUM(cost) / COUNT(patient) AS mean FROM visits v "
     "GROUP BY sex HAVING COUNT(patient) > 3",
     "SELECT sex, COUNT(*) AS n, SUM(cost) / COUNT(*) AS mean FROM visits GROUP BY sex "
     "HAVING COUNT(*) > 3"),
    ("SELECT COUNT(patient) FILTER (WHERE sick), COUNT(CASE WHEN age > 9 THEN patient END) "
     "FROM visits",
     "SELECT COUNT(*) FILTER (WHERE sick), COUNT(*) FILTER (WHERE age > 9) FROM visits"),
    ("SELECT COUNT(v.patient) FROM visits v LEFT JOIN drugs d ON v.patient = d.patient",
     "SELECT COUNT(*) FROM visits v LEFT JOIN drugs d ON v.patient = d.patient"),
    ("SELECT AVG(n), COUNT(who) FROM (SELECT patient AS who, COUNT(patient) AS n, COUNT(CASE WHEN "
     "sick THEN patient END) AS m FROM visits GROUP BY patient)",
     "SELECT AVG(n), COUNT(*) FROM (SELECT patient, COUNT(*) AS n, COUNT(*) FILTER (WHERE sick) "
     "AS m FROM visits GROUP BY patient)"),
    ("SELECT COUNT(*) FROM visits v JOIN drugs d ON v.patient = d.patient JOIN zips z ON "
     "z.zip = d.drug AND z.zip = v.zip",
     "SELECT COUNT(*) FROM visits v JOIN drugs d ON v.patient = d.patient JOIN zips z ON "
     "v.zip = z.zip AND z.zip = d.drug AND v.zip = z.zip"),
    (f"SELECT v.n, SUM(d.m) AS s FROM {VISITS} v JOIN {DRUGS} d ON d.patient = v.patient "
     "WHERE d.m > 20 GROUP BY v.n ORDER BY v.n",
     f"WITH v AS {VISITS}, d AS (SELECT patient, SUM(dose) AS m FROM drugs GROUP BY patient HAVING "
     "SUM(dose) > 20) SELECT n, SUM(m) AS s FROM v JOIN d USING (patient) GROUP BY n ORDER BY n"),
    (f"SELECT SUM(x), COUNT(*) FROM (SELECT v.n AS x, d.m AS y FROM {VISITS} v LEFT JOIN {DRUGS} d "
     "ON v.patient = d.patient) WHERE y > 20 OR y IS NULL",
     f"SELECT SUM(v.n), COUNT(*) FROM {VISITS} v LEFT JOIN {DRUGS} d USING (patient) "
     "WHERE m > 20 OR m IS NULL"),
    ("SELECT COUNT(DISTINCT a.who), SUM(b.n) FROM (SELECT patient AS who, COUNT(*) AS m FROM "
     "visits WHERE age > 9 GROUP BY patient) a LEFT JOIN (SELECT patient AS whom, COUNT(*) AS n "
     "FROM drugs GROUP BY patient) b ON b.whom = a.who WHERE a.m > 2",
     "SELECT COUNT(DISTINCT a.patient), SUM(n) FROM (SELECT patient, COUNT(*) AS m FROM visits "
     "WHERE age > 9 "
     "GROUP BY patient) a LEFT JOIN (SELECT patient, COUNT(*) AS n FROM drugs GROUP BY patient) b "
     "USING (patient) WHERE m > 2"),
    ("SELECT region, SUM(n) FROM (SELECT patient, MIN(zip) AS z, COUNT(*) AS n FROM visits "
     "GROUP BY patient) p JOIN zips ON p.z = zips.zip WHERE z = 'z0' GROUP BY region",
     "WITH p AS (SELECT patient, MIN(zip) AS z, COUNT(*) AS n FROM visits GROUP BY patient) SELECT "
     "y.region, SUM(x.n) FROM p x JOIN zips y ON y.zip = x.z WHERE x.z = 'z0' GROUP BY y.region"),
    ("SELECT AVG(t.n) FROM (SELECT p.patient, SUM(v.cost) AS n FROM patients p JOIN visits v ON "
     "p.patient = v.patient GROUP BY p.patient) t",
     "SELECT AVG(n) FROM (SELECT patient, SUM(cost) AS n FROM patients JOIN visits USING (patient) "
     "GROUP BY patient)"),
]  # fmt: skip


@pytest.mark.parametrize(("written", "plain"), SAID_TWICE, ids=[text for text, _ in SAID_TWICE])
def test_what_is_said_in_two_ways_is_one_question(card: Card, written: str, plain: str) -> None:
    assert planned(card, written).digest() == planned(card, plain).digest()


@pytest.mark.parametrize(("written", "plain"), SAID_TWICE, ids=[text for text, _ in SAID_TWICE])
def test_what_is_said_in_two_ways_is_one_question_in_plain_sql_too(
    written: str, plain: str
) -> None:
    with duckdb.connect() as connection:
        for statement in ROWS:
            connection.execute(statement)
        found = [connection.execute(text).fetchall() for text in (written, plain)]
    assert sorted(found[0], key=str) == sorted(found[1], key=str)
    assert found[0]


def test_var_is_var_samp_and_says_so(card: Card) -> None:
    made = planned(card, "SELECT VAR(cost) FROM visits")
    assert made.digest() == planned(card, "SELECT VAR_SAMP(cost) FROM visits").digest()
    assert plan_text(made) == "the sample variance (VAR_SAMP) of cost"


@pytest.mark.parametrize(
    ("of", "instead"),
    [("STD(cost)", "STDDEV_SAMP(x)"), ("VARP(cost)", "VAR_POP(x)"), ("STDEVP(cost)", "STDDEV_POP")],
)
def test_a_spread_by_another_name_is_told_its_names_here(card: Card, of: str, instead: str) -> None:
    with pytest.raises(Refused) as refused:
        planned(card, f"SELECT {of} FROM visits")
    assert instead in refused.value.next_step


@pytest.mark.parametrize("condition", ["sick = 2", "sick IN (0, 0.5)", "sick > 0", "sick = '1'"])
def test_a_boolean_is_no_other_number_than_0_and_1(card: Card, condition: str) -> None:
    with pytest.raises(Refused) as refused:
        planned(card, f"SELECT COUNT(*) FROM visits WHERE {condition}")
    assert refused.value.code == "type-mismatch"


def test_people_and_their_rows_are_counted_apart(card: Card) -> None:
    made = planned(card, "SELECT COUNT(patient), COUNT(DISTINCT patient) FROM visits")
    assert [one.verb for one in made.aggregates] == ["count", "count_people"]


def test_the_person_of_a_table_without_a_partner_is_not_counted_as_rows(card: Card) -> None:
    """There COUNT(d.patient) is less than COUNT(*), and says whether there is a partner."""
    with pytest.raises(Refused, match="without a match"):
        planned(
            card,
            "SELECT COUNT(d.patient) FROM visits v LEFT JOIN drugs d ON v.patient = d.patient",
        )


def test_having_compares_a_boolean_key_with_1(card: Card) -> None:
    grouped = "SELECT sick, COUNT(*) AS n FROM visits GROUP BY sick HAVING"
    made = planned(card, f"{grouped} sick = 1")
    assert made.question.having == planned(card, f"{grouped} sick = TRUE").question.having
    rows = [Row(((value), 5), (None, 1.0), (None, (3, 7))) for value in (False, True)]
    assert [row.values for row in apply_having_order_limit(made.question, rows)] == [(True, 5)]


def test_inner_selects_that_double_on_the_way_are_refused_in_time(card: Card) -> None:
    steps = ["a0 AS (SELECT age AS x FROM visits)"]
    steps += [f"a{n} AS (SELECT x + x + x + x AS x FROM a{n - 1})" for n in range(1, 40)]
    with pytest.raises(Refused, match="question-too-large"):
        planned(card, f"WITH {', '.join(steps)} SELECT SUM(x) FROM a39")
    with pytest.raises(Refused, match="question-too-large"):
        planned(card, f"WITH {', '.join(steps[:8])} SELECT SUM(x) FROM a7")
