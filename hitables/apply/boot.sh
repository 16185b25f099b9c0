# ---- from here on the same in every such file ----

# Say something to the journal, and to the log of the state directory.
say() {
    printf 'hitables: %s\n' "$*" >&2
    if [ "$MODE" = boot ]; then
        printf '%s boot: %s\n' "$(date '+%Y-%m-%d %H:%M:%S')" "$*" >>"$FOLDER/log"
    fi 2>/dev/null
}

# The first lines of a message of a tool, in one line.
short() {
    printf '%s\n' "$*" | head -n 3 | tr '\n' ' ' | cut -c 1-300
}

# Whether a file is there and as it was written.
is_whole() {
    [ -r "$HERE/$1" ] && [ "$(cksum <"$HERE/$1" 2>/dev/null)" = "$(sum_of "$1")" ]
}

tool_of() {
    case $1 in
        4) echo "iptables-$BACKEND4" ;;
        6) echo "ip6tables-$BACKEND6" ;;
    esac
}

is_legacy() {
    case $(tool_of "$1") in
        *-legacy) return 0 ;;
        *) return 1 ;;
    esac
}

# The rules of a step, for iptables-restore.
text_of() {
    case $2 in
        closed | bare) "$2$1" ;;
        *) cat "$HERE/$2$1" ;;
    esac
}

# How long to wait for the lock, which only the tools of legacy have: some versions end at once, others never.
patience_of() {
    ! is_legacy "$1" || echo "-w 30"
}

# Load standard input in place of the tables that it names.
restore() {
    # shellcheck disable=SC2046  # two words, or none
    "$(tool_of "$1")-restore" $(patience_of "$1")
}

# Load the rules of a step into a scratch network namespace, where the sets are empty.
try() {
    [ "$CAN_TRY" = yes ] || return 0
    text_of "$1" "$2" | unshare -n /bin/sh "$HERE/load" --scratch "$1"
}

# Whether a scratch namespace takes rules.  Where a security profile denies capabilities to what unshare starts, it
# takes none, whatever they are.
can_try() {
    if ! command -v unshare >/dev/null 2>&1; then
        say "unshare is not installed, so rules are loaded without a trial"
        return
    fi
    for family in $FAMILIES; do
        # shellcheck disable=SC2046  # two words, or none
        if message=$(printf '*filter\nCOMMIT\n' |
            unshare -n "$(tool_of "$family")-restore" $(patience_of "$family") 2>&1); then
            echo yes
            return
        fi
    done
    say "no scratch namespace takes rules, so they are loaded without a trial: $(short "$message")"
}

# The rules of a family that the kernel has.
rules_of() {
    if is_legacy "$1"; then
        names=/proc/net/ip_tables_names
        [ "$1" = 4 ] || names=/proc/net/ip6_tables_names
        # The tool would create tables.
        grep -q . "$names" 2>/dev/null || return 0
    fi
    "$(tool_of "$1")-save" 2>/dev/null | grep '^-A '
}

is_empty() {
    ! rules_of "$1" | grep -q .
}

# The rules of standard input but for the jumps to chains of ufw, which ufw makes too.
but_ufw() {
    grep -v -E -e ' -[jg] ufw6?-[a-z-]+$'
}

# Whether the kernel has a rule of the user, not only those of other programs.
has_ours() {
    loaded=$(rules_of "$1" | but_ufw)
    # The grep of busybox finds every line with an empty list of lines.
    [ -n "$loaded" ] || return 1
    printf '%s\n' "$loaded" | grep -q -s -x -F -f - "$HERE/compiled$1" "$HERE/source$1" "$HERE/last$1"
}

# Create the ipset of a file with its members; if that is not possible, empty.  A set that exists stays as it is.
set_of() {
    file=$1 name=$2
    shift 2
    if [ "$MODE" = scratch ]; then
        ipset -exist create "$name" "$@"
        return
    fi
    ipset list -terse "$name" >/dev/null 2>&1 && return
    if ! is_whole "$file"; then
        say "ipset $name: its file is missing or damaged; the set is empty"
    elif ! message=$(ipset -exist restore <"$HERE/$file" 2>&1); then
        say "ipset $name: not all members are loaded: $(short "$message")"
    fi
    if ! message=$(ipset -exist create "$name" "$@" 2>&1); then
        ipset list -terse "$name" >/dev/null 2>&1 || say "ipset $name: $(short "$message")"
    fi
}

# Empty the tables besides filter, which a text that was refused half-way may have left.
clear_tables() {
    for table in $TABLES; do
        case $table in
            nat) chains="PREROUTING INPUT OUTPUT POSTROUTING" ;;
            mangle) chains="PREROUTING INPUT FORWARD OUTPUT POSTROUTING" ;;
            raw) chains="PREROUTING OUTPUT" ;;
            security) chains="INPUT FORWARD OUTPUT" ;;
            *) continue ;;
        esac
        {
            echo "*$table"
            for chain in $chains; do
                echo ":$chain ACCEPT [0:0]"
            done
            echo COMMIT
        } | restore "$1" >/dev/null 2>&1 || say "IPv$1: table $table cannot be emptied"
    done
}

# Load the first step of a family that can be loaded; the number of the step is left in REACHED.
climb() {
    REACHED=0 HALF=no
    of_ufw=
    [ "$AGAIN" = yes ] || of_ufw=$(chains_of_ufw "$1") # else another program has just put its rules in their place
    if [ "$1" = 6 ] && ! [ -e /proc/net/if_inet6 ]; then
        say "IPv6: this kernel has no IPv6, so no rules are loaded"
        return
    fi
    for step in compiled source last closed bare; do
        REACHED=$((REACHED + 1))
        case $step in
            closed | bare) ;;
            *)
                [ -n "$(sum_of "$step$1")" ] || continue
                if ! is_whole "$step$1"; then
                    say "IPv$1: the $step rules are missing or damaged"
                    continue
                fi
                ;;
        esac
        if ! message=$(try "$1" "$step" 2>&1); then
            say "IPv$1: the $step rules are refused in a scratch namespace: $(short "$message")"
        elif ! message=$(text_of "$1" "$step" | restore "$1" 2>&1); then
            say "IPv$1: the $step rules are refused: $(short "$message")"
            HALF=yes
        else
            [ "$REACHED" -le 3 ] || [ "$HALF" = no ] || clear_tables "$1"
            say "IPv$1: the $step rules are loaded"
            refill_ufw "$1" "$step" "$of_ufw"
            STEPS="$STEPS$1 $step
"
            return
        fi
    done
    # No text can be loaded.  Single commands need the least of a kernel.
    REACHED=6
    # shellcheck disable=SC2046
    "$(tool_of "$1")" $(patience_of "$1") -P INPUT DROP &&
        "$(tool_of "$1")" $(patience_of "$1") -P FORWARD DROP &&
        say "IPv$1: no rules can be loaded; the policies of INPUT and FORWARD are DROP" && return
    say "IPv$1: NO RULES CAN BE LOADED, AND THE HOST IS OPEN"
}

# The chains of ufw with their rules, for iptables-restore --noflush; nothing if ufw has not started.
chains_of_ufw() {
    is_empty "$1" || "$(tool_of "$1")-save" 2>/dev/null |
        sed -n '/^\*filter/,/^COMMIT/{/^:ufw6\{0,1\}-/p;/^-A ufw6\{0,1\}-/p;}'
}

# Give the chains of ufw the rules back that they had before a step was loaded, if the step has these chains and
# no rules of them.
refill_ufw() {
    [ -n "$3" ] && text_of "$1" "$2" | grep -q -E '^:ufw6?-' || return 0
    ! text_of "$1" "$2" | grep -q -E '^-A ufw6?-' || return 0 # then they are chains of the user's file
    # shellcheck disable=SC2046
    message=$(printf '*filter\n%s\nCOMMIT\n' "$3" |
        "$(tool_of "$1")-restore" --noflush $(patience_of "$1") 2>&1) ||
        say "IPv$1: the chains of ufw are empty (ufw reload): $(short "$message")"
}

# Say of each step whether it can be loaded: one line each, for "hitables persist".
try_all() {
    CAN_TRY=$(can_try)
    [ "$CAN_TRY" = yes ] || exit 1
    for family in $FAMILIES; do
        for step in compiled source last closed bare; do
            case $step in
                closed | bare) ;;
                *)
                    [ -n "$(sum_of "$step$family")" ] || continue
                    is_whole "$step$family" || { echo "$family $step damaged" && continue; }
                    ;;
            esac
            if message=$(try "$family" "$step" 2>&1); then
                echo "$family $step ok"
            else
                printf '%s\n' "$family $step refused $(short "$message")"
            fi
        done
    done
    exit 0
}

# Whether rules of the family can be found in the kernel: not where it has policies alone, or where there is no IPv6.
can_have_ours() {
    [ "$1" = 4 ] || [ -e /proc/net/if_inet6 ] || return 1
    grep -h -s '^-A ' "$HERE/compiled$1" "$HERE/source$1" "$HERE/last$1" | but_ufw | grep -q .
}

# Whether this boot has loaded rules of the user already, and they are there: other programs have added theirs since.
is_done() {
    read -r booted <"$FOLDER/booted" && [ "$booted" = "$(cat /proc/sys/kernel/random/boot_id)" ] || return 1
    ! grep -q -E ' (closed|bare)$' "$FOLDER/booted" || return 1
    found=no
    for family in $FAMILIES; do
        can_have_ours "$family" || continue
        grep -q "^$family " "$FOLDER/booted" && has_ours "$family" || return 1
        found=yes
    done
    [ "$found" = yes ]
} 2>/dev/null

# Load the rules, unless they are there; with "again" in any case.
boot() {
    if [ "$AGAIN" = no ] && is_done; then
        say "the rules were loaded already since the boot, and stay as they are (hitables status --repair)"
        exit 101
    fi
    STEPS=
    # Whatever becomes of this process: the host is closed until better rules are loaded.  Rules without a table
    # filter would not replace these, and such a host was open before.
    for family in $FILTERED; do
        if { [ "$family" = 4 ] || [ -e /proc/net/if_inet6 ]; } && is_empty "$family"; then
            "closed$family" | restore "$family" >/dev/null 2>&1 ||
                "bare$family" | restore "$family" >/dev/null 2>&1 ||
                say "IPv$family: the closed rules are refused"
        fi
    done
    CAN_TRY=$(can_try)
    sets
    worst=1
    for family in $FAMILIES; do
        climb "$family"
        [ "$REACHED" -le "$worst" ] || worst=$REACHED
    done
    {
        cat /proc/sys/kernel/random/boot_id
        printf %s "$STEPS"
    } >"$FOLDER/booted" 2>/dev/null
    exit $((100 + worst))
}

main() {
    case ${1-} in
        --scratch)
            MODE=scratch
            sets
            restore "$2"
            exit
            ;;
        --try)
            MODE=try
            try_all
            ;;
        '')
            MODE=boot AGAIN=no
            boot
            ;;
        --again)
            MODE=boot AGAIN=yes
            boot
            ;;
        *)
            echo "hitables: load takes --try, --again, or nothing: then it loads the rules as at boot" >&2
            exit 2
            ;;
    esac
}

main "$@"
