#!/usr/bin/env bash
# One job and one that is cancelled, by the curl lines of the API reference: BASE=… TOKEN=… MODEL=… PYTHON=… curl_lines.sh ROWS RESULT
# ROWS is uploaded, RESULT written. Prints one line a step: its name, the HTTP status, and what the answer says.
set -eu -o pipefail

rows=$1
result=$2
patience_seconds=90
answer=

# Read a JSON object from the standard input and print what stands under these names; nothing for null.
pick() {
  "$PYTHON" -I -S -c '
import json, sys
value = json.load(sys.stdin)
for name in sys.argv[1:]:
    value = value[name]
print("" if value is None else value)' "$@"
}

# Run curl; keep the body in $answer and print step, status and the field of the body that this caller looks at.
step() {
  local name=$1 field=$2 told status
  shift 2
  told=$(curl --silent --show-error --write-out '\n%{http_code}' "$@")
  status=${told##*$'\n'}
  answer=${told%$'\n'*}
  # shellcheck disable=SC2086 # a path into the body is several words
  echo "$name $status $(pick $field <<<"$answer")"
}

# Poll a job until it has a status.
await() {
  local job=$1 wanted=$2 status=
  while [ "$status" != "$wanted" ]; do
    if [ "$SECONDS" -gt "$patience_seconds" ] || [ "$status" = failed ]; then
      echo "$job is $status, not $wanted" >&2
      exit 1
    fi
    status=$(curl --silent --show-error --fail "$BASE/jobs/$job" -H "Authorization: Bearer $TOKEN" | pick status)
  done
}

step create status -X POST "$BASE/inputs" -H "Authorization: Bearer $TOKEN" \
  -H 'Content-Type: application/json' -d '{"format": "jsonl"}'
input=$(pick id <<<"$answer")
upload_url=$(pick upload_url <<<"$answer")
mapfile -t form < <("$PYTHON" -I -S -c '
import json, sys
for name, value in json.load(sys.stdin)["fields"].items():
    print("-F", f"{name}={value}", sep="\n")' <<<"$answer")

echo "upload $(curl --silent --show-error --write-out '%{http_code}' "$upload_url" "${form[@]}" -F "file=@$rows")"
step uploaded status "$BASE/inputs/$input" -H "Authorization: Bearer $TOKEN"

step submit status -X POST "$BASE/jobs" -H "Authorization: Bearer $TOKEN" \
  -H 'Content-Type: application/json' -d '{
  "input_id": "'"$input"'",
  "model": "'"$MODEL"'"
}'
job=$(pick id <<<"$answer")
step submit-other status -X POST "$BASE/jobs" -H "Authorization: Bearer $TOKEN" \
  -H 'Content-Type: application/json' -d "{\"input_id\": \"$input\", \"model\": \"$MODEL\", \"max_output_tokens\": 5}"
other=$(pick id <<<"$answer")

await "$job" cost_ready
step poll status "$BASE/jobs/$job" -H "Authorization: Bearer $TOKEN"
step approve status -X POST "$BASE/jobs/$job/approve" -H "Authorization: Bearer $TOKEN"
step approve-again "error code" -X POST "$BASE/jobs/$job/approve" -H "Authorization: Bearer $TOKEN"

await "$other" cost_ready
step cancel status -X POST "$BASE/jobs/$other/cancel" -H "Authorization: Bearer $TOKEN"
step cancel-again "error code" -X POST "$BASE/jobs/$other/cancel" -H "Authorization: Bearer $TOKEN"
step no-result "error code" "$BASE/jobs/$other/result" -H "Authorization: Bearer $TOKEN"

await "$job" done
step result row_count "$BASE/jobs/$job/result" -H "Authorization: Bearer $TOKEN"
curl --silent --show-error --fail --output "$result" "$(pick result_url <<<"$answer")"

step no-key "error code" "$BASE/jobs/$job"
step bad-key "error code" "$BASE/jobs/$job" -H "Authorization: Bearer sk-nobody"
step bad-id "error code" "$BASE/jobs/$input" -H "Authorization: Bearer $TOKEN"
step no-format "error code" -X POST "$BASE/inputs" -H "Authorization: Bearer $TOKEN" \
  -H 'Content-Type: application/json' -d '{}'
step bad-model "error code" -X POST "$BASE/jobs" -H "Authorization: Bearer $TOKEN" \
  -H 'Content-Type: application/json' -d "{\"input_id\": \"$input\", \"model\": \"nobody-1b\"}"

step delete status -X DELETE "$BASE/jobs/$job/data" -H "Authorization: Bearer $TOKEN"
step delete-again status -X DELETE "$BASE/jobs/$job/data" -H "Authorization: Bearer $TOKEN"
step gone "error code" "$BASE/jobs/$job/result" -H "Authorization: Bearer $TOKEN"
