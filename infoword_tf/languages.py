"""Codes of languages: `deu`, `ger` and `de-AT` are `de`.

ISO 639-1 where a language has two letters, else ISO 639-3.
"""

import re

# Codes of two letters, and the equal ones of three: of ISO 639-3, of a single
# language that stands for a group (cmn, arb), and of libraries (ger).
_THREE = {
    three: two
    for two, *others in map(
        str.split,
        """
        af afr|am amh|an arg|ar ara arb|as asm|az aze azj|be bel|bg bul|bn ben
        bo bod tib|br bre|bs bos|ca cat|ch cha|co cos|cs ces cze|cv chv
        cy cym wel|da dan|de deu ger|dv div|dz dzo|el ell gre|en eng|eo epo
        es spa|et est ekk|eu eus baq|fa fas per pes|fi fin|fo fao|fr fra fre
        fy fry|ga gle|gd gla|gl glg|gn grn|gu guj|gv glv|ha hau|he heb|hi hin
        hr hrv|ht hat|hu hun|hy hye arm|ia ina|id ind|ie ile|ig ibo|io ido
        is isl ice|it ita|iu iku|ja jpn|jv jav|ka kat geo|kk kaz|kl kal|km khm
        kn kan|ko kor|ks kas|ku kur|kw cor|ky kir|la lat|lb ltz|lg lug|li lim
        ln lin|lo lao|lt lit|lv lav lvs|mg mlg plt|mi mri mao|mk mkd mac|ml mal
        mn mon khk|mr mar|ms msa may zsm|mt mlt|my mya bur|nb nob|ne nep npi
        nl nld dut|nn nno|no nor|ny nya|oc oci|om orm|or ori ory|os oss|pa pan
        pl pol|ps pus pbt|pt por|qu que|rm roh|rn run|ro ron rum|ru rus|rw kin
        sa san|sc srd|sd snd|se sme|sh hbs|si sin|sk slk slo|sl slv|sm smo
        sn sna|so som|sq sqi alb|sr srp|ss ssw|st sot|su sun|sv swe|sw swa swh
        ta tam|te tel|tg tgk|th tha|ti tir|tk tuk|tl tgl|tn tsn|to ton|tr tur
        ts tso|tt tat|ug uig|uk ukr|ur urd|uz uzb uzn|ve ven|vi vie|vo vol
        wa wln|wo wol|xh xho|yi yid ydd|yo yor|zh zho chi cmn|zu zul
        """.strip()
        .replace('\n', '|')
        .split('|'),
    )
    for three in others
}
# Languages that have a code of three letters alone.
_ALONE = frozenset(
    'ang arq arz ast awa ber cbk ceb ckb crh csb dsb dtp fil fur gsw haw hsb '
    'ilo jbo kab kmr kok kzj lfn mai max mhr mnk nap nds nov nso orv pam pms '
    'shn swg szl tet tzl wal war wuu yue zza'.split()
)
_KNOWN = _ALONE.union(_THREE.values())
_CODE = re.compile('[a-z]{2,3}')


def code_of(name: str) -> str | None:
    """Normalizes the code of a language, without script and region.

    Args:
        name: `de`, `deu`, `de-AT`, `pt_BR.UTF-8` or `sr@latin`. An unknown
            code is returned as it is.

    Returns:
        None: the name is no code.
    """
    code = re.split('[-_.@]', name.strip().lower(), maxsplit=1)[0]
    return _THREE.get(code, code) if _CODE.fullmatch(code) else None


def known_code(name: str) -> str | None:
    """Normalizes the code of a known language; None: an unknown one."""
    code = code_of(name)
    return code if code in _KNOWN else None
