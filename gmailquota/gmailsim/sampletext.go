package gmailsim

import "slices"

// sampleLanguage is what SampleMail writes in one language.
type sampleLanguage struct {
	reply, hello, bye, wrote string
	gap                      string   // between sentences
	latin                    bool     // may be written in ISO-8859-1
	names, topics, sentences []string // a name is followed by | and its address's first part
}

var sampleDomains = []string{"northwind.example", "alder-co.example", "kestrel.example", "brightfield.example", "mailroom.example", "harbour.example"}

var sampleEnglish = &sampleLanguage{
	reply: "Re: ", hello: "Hi %s,", bye: "Best regards,", wrote: "%s wrote", gap: " ",
	names: []string{
		"Maya Lindqvist|maya.lindqvist", "Tom Okafor|tom.okafor", "Priya Raman|priya.raman", "Daniel Brooks|daniel.brooks", "Sofia Hart|sofia.hart", "Ethan Cole|ethan.cole", "Grace Whitfield|grace.whitfield", "Noah Adler|noah.adler",
	},
	topics: []string{
		"Quarterly numbers for the board", "Contract renewal", "Shipment delayed at customs", "Interview on Thursday",
		"Broken invoice export", "Office move: floor plan", "Feedback on the prototype", "Release checklist",
		"Support ticket", "Lunch with the Lisbon team", "Access to the staging cluster", "Data protection questionnaire",
	},
	sentences: []string{
		"Thanks for getting back to me so quickly.", "I have added my comments to the shared document.",
		"Could you check the figures in the second table before we send this out?",
		"The customer asked for a new quote by the end of the week.", "We can reproduce it with the export from March.",
		"I'd rather not change the date again, since travel is booked already.", "Please let me know if that works for you.",
		"The carrier promises delivery for Tuesday, but I would not count on it.", "Legal has no objections to clause 7.",
		"I attach nothing this time, everything is in the tracker.", "Shall we take fifteen minutes tomorrow to settle this?",
		"The total went down by about 4% compared with last month.", "Two of the five interviews are still open.",
		"Nothing urgent, but I wanted it written down somewhere.", "I'll be out on Friday; Grace covers for me.",
		"The second deploy went through without a hitch.", "Sorry for the late reply, I was at the trade fair.",
	},
}

var sampleGerman = &sampleLanguage{
	reply: "AW: ", hello: "Hallo %s,", bye: "Viele Grüße", wrote: "%s schrieb", gap: " ", latin: true,
	names:  []string{"Jörg Müller|joerg.mueller", "Anke Schäfer|anke.schaefer", "Björn Weiß|bjoern.weiss", "Katrin Vogel|k.vogel", "Stefan Groß|stefan.gross"},
	topics: []string{"Angebot für die Prüfstände", "Terminverschiebung Übergabe", "Rückfrage zur Rechnung", "Schlüssel für das Büro", "Protokoll der Sitzung"},
	sentences: []string{
		"Vielen Dank für die schnelle Rückmeldung.", "Die Prüfung läuft noch, wir rechnen mit einem Ergebnis bis Mittwoch.",
		"Könnten Sie bitte die Lieferadresse bestätigen?", "Der Betrag weicht um 12,50 Euro vom Angebot ab.",
		"Ich kümmere mich darum und melde mich, sobald ich Näheres weiß.", "Die Schlüssel liegen am Empfang bereit.",
		"Für den Rückbau brauchen wir mindestens zwei Tage länger.", "Bitte schicken Sie uns die Unterlagen gebündelt.",
	},
}

var sampleFrench = &sampleLanguage{
	reply: "Re: ", hello: "Bonjour %s,", bye: "Bien cordialement,", wrote: "%s a écrit", gap: " ", latin: true,
	names:  []string{"Élodie Lefèvre|elodie.lefevre", "François Garnier|f.garnier", "Chloé Dubois|chloe.dubois", "Hélène Marchand|helene.marchand"},
	topics: []string{"Réunion de mercredi", "Déplacement à Genève", "Mise à jour du catalogue", "Facture à régler"},
	sentences: []string{
		"Merci beaucoup pour votre réponse rapide.", "Le dossier complet sera prêt à la fin de la semaine.",
		"Pourriez-vous vérifier le numéro de commande ?", "La salle est réservée de neuf heures à midi.",
		"Je préfère déplacer la réunion à jeudi.", "Les épreuves corrigées sont chez l'imprimeur.", "Tout est réglé de notre côté.",
	},
}

var sampleSpanish = &sampleLanguage{
	reply: "Re: ", hello: "Hola, %s:", bye: "Un saludo,", wrote: "%s escribió", gap: " ", latin: true,
	names:  []string{"Íñigo Castaño|inigo.castano", "Lucía Peña|lucia.pena", "Andrés Núñez|andres.nunez", "Begoña Ruiz|b.ruiz"},
	topics: []string{"Pedido pendiente de envío", "Cambio de horario en otoño", "Presupuesto del año próximo", "Incidencia en la línea 3"},
	sentences: []string{
		"Gracias por avisar con tiempo.", "El envío saldrá mañana por la mañana.", "¿Podéis confirmar cuántas unidades faltan?",
		"El técnico pasará entre las diez y las doce.", "Todavía falta la firma del señor Núñez.", "Os paso el resumen en cuanto lo tenga.",
	},
}

var samplePolish = &sampleLanguage{
	reply: "Odp: ", hello: "Cześć %s,", bye: "Pozdrawiam,", wrote: "%s pisze", gap: " ",
	names:  []string{"Łukasz Wiśniewski|lukasz.wisniewski", "Małgorzata Dąbrowska|m.dabrowska", "Paweł Zając|pawel.zajac"},
	topics: []string{"Zgłoszenie serwisowe", "Spotkanie w Krakowie", "Umowa najmu"},
	sentences: []string{
		"Dziękuję za szybką odpowiedź.", "Część zamówienia dotrze w środę.", "Proszę o potwierdzenie terminu.",
		"Załączyłam poprawioną wersję umowy do wspólnego folderu.", "Możemy porozmawiać jutro po południu?",
	},
}

var sampleJapanese = &sampleLanguage{
	reply: "Re: ", hello: "%sさん", bye: "よろしくお願いいたします。", wrote: "%s さんは書きました", gap: "",
	names:  []string{"佐藤 美咲|misaki.sato", "田中 健太|kenta.tanaka", "鈴木 陽子|yoko.suzuki"},
	topics: []string{"来週の打ち合わせについて", "見積書の件", "出張の日程"},
	sentences: []string{
		"お返事ありがとうございます。", "資料は共有フォルダーに入れておきました。", "火曜日の午後二時からでいかがでしょうか。",
		"数字をもう一度確認していただけますか。", "詳細が分かり次第、ご連絡いたします。",
	},
}

// sampleLanguages has English more often than the rest.
var sampleLanguages = []*sampleLanguage{
	sampleEnglish, sampleEnglish, sampleEnglish, sampleEnglish, sampleEnglish, sampleEnglish,
	sampleGerman, sampleGerman, sampleFrench, sampleSpanish, samplePolish, sampleJapanese,
}

func sortByDate(mails []sampleMessage) {
	slices.SortStableFunc(mails, func(a, b sampleMessage) int { return a.date.Compare(b.date) })
}
